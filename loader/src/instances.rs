//! Variants of one program, each with instructions of its own: what libbpf once called a preprocessor
//! (`bpf_program__set_prep`) and instances (`bpf_program__nth_fd`), for both targets.
//!
//! As there: a variant may be left out, and keeps its number then. Unlike there: instances are owned, so that none
//! remains closed, and the same program may be given other variants at any time.

/// What was made of the variants of a program, by their numbers.
///
/// ```
/// use twinbpf_loader::{Instances, NoInstance};
///
/// let instances: Instances<u8> = [Some(5), None].into_iter().collect();
/// assert_eq!(instances.get(0), Ok(&5));
/// assert_eq!(instances.get(1), Err(NoInstance::Skipped(1)));
/// assert_eq!(instances.iter().count(), 1);
/// ```
#[derive(Debug)]
pub struct Instances<T> {
    slots: Vec<Option<T>>,
}

/// Why there is no instance of a number.
///
/// ```
/// use twinbpf_loader::{Instances, NoInstance};
///
/// let none = [None::<u8>].into_iter().collect::<Instances<u8>>();
/// assert_eq!(none.get(3), Err(NoInstance::Beyond { number: 3, count: 1 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoInstance {
    /// There are fewer.
    #[error("there is no instance {number}: the program has {count}")]
    Beyond {
        /// The requested number.
        number: usize,
        /// How many there are.
        count: usize,
    },
    /// Its variant was left out.
    #[error("instance {0} was left out")]
    Skipped(usize),
}

impl<T> Instances<T> {
    /// How many variants there were, those left out included.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there was no variant.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// An instance by its number.
    ///
    /// # Errors
    /// There is none, or it was left out.
    pub fn get(&self, number: usize) -> Result<&T, NoInstance> {
        let count = self.slots.len();
        let slot = self.slots.get(number).ok_or(NoInstance::Beyond { number, count })?;
        slot.as_ref().ok_or(NoInstance::Skipped(number))
    }

    /// Those that are there, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }
}

impl<T> FromIterator<Option<T>> for Instances<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(slots: I) -> Instances<T> {
        Instances { slots: slots.into_iter().collect() }
    }
}
