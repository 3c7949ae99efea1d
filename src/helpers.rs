//! Helper numbers: the kernel's, and private ones that an embedder gives.

use std::sync::Arc;

use twinbpf_vm::helper;
use twinbpf_vm::host::{HostFn, IntoHostFn};
use twinbpf_vm::image::TAIL_CALL;

use crate::error::{Error, HelperError};
use crate::linker::Linker;
use crate::resolution::TAIL_CALL_NAME;

impl<T: Send + 'static> Linker<T> {
    /// Gives programs a function that they call by number (`call 1000`), as by its name: [`Linker::func`] says what a
    /// function is. Take a number that the kernel will not give to a helper of its own, from 1000 on for instance.
    /// A name is that of one function: numbers that share it call the one that was given last.
    ///
    /// ```
    /// use twinbpf::{Config, Engine, Linker, Object};
    /// use twinbpf_isa::asm;
    ///
    /// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
    /// linker.helper(1000, "square", |x: u64| x * x)?;
    /// let object = Object::from_insns("square", &asm::parse("r1 = 7\ncall 1000\nexit")?)?;
    /// let pre = linker.instantiate_pre(&object)?;
    /// let main = pre.program("main").expect("what bare instructions are called");
    /// assert_eq!(pre.instance(())?.call(main, &[])?, 49);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The number is one of the kernel's, or another function's.
    pub fn helper<Params>(
        &mut self,
        number: u32,
        name: &str,
        function: impl IntoHostFn<T, Params>,
    ) -> Result<&mut Linker<T>, Error> {
        match kernel_name(number) {
            Some(kernel) => Err(HelperError::Kernel { number, name: name.into(), kernel }.into()),
            None => self.helper_anyway(number, name, function),
        }
    }

    /// As [`Linker::helper`], for bytecode whose numbers are not the kernel's: programs of this linker cannot call the
    /// kernel's helper of this number.
    ///
    /// # Errors
    /// The number is another function's.
    pub fn helper_anyway<Params>(
        &mut self,
        number: u32,
        name: &str,
        function: impl IntoHostFn<T, Params>,
    ) -> Result<&mut Linker<T>, Error> {
        let name: Arc<str> = name.into();
        match self.numbers.get(&number) {
            Some(other) if *other != name => Err(HelperError::Taken { number, name, other: Arc::clone(other) }.into()),
            Some(_) | None => {
                self.numbers.insert(number, Arc::clone(&name));
                Ok(self.func(&name, function))
            }
        }
    }
}

impl<T> Linker<T> {
    /// Whether programs may call this number: some of the kernel's trap.
    pub(crate) fn helper_exists(&self, number: i32) -> bool {
        helper::exists(number) || self.numbers.contains_key(&(number as u32))
    }

    /// Refuses a function of the embedder that no program would reach.
    pub(crate) fn check_functions(&self) -> Result<(), HelperError> {
        if self.functions.contains_key(TAIL_CALL_NAME) { Err(HelperError::TailCall) } else { Ok(()) }
    }

    /// Whether this machine has the function of a number.
    pub(crate) fn has_helper(&self, number: i32) -> bool {
        number as u32 == TAIL_CALL || self.numbered(number as u32).is_some()
    }

    /// What messages call a number.
    pub(crate) fn helper_name(&self, number: i32) -> String {
        let own = self.numbers.get(&(number as u32)).map(|name| name.to_string());
        own.or_else(|| helper::name(number)).unwrap_or_else(|| format!("helper {number}"))
    }

    /// The function that programs call by this number. Of the kernel's, one of the embedder that has its name.
    pub(crate) fn numbered(&self, number: u32) -> Option<HostFn> {
        if let Some(name) = self.numbers.get(&number) {
            return self.functions.get(name).cloned();
        }
        let id = i32::try_from(number).ok().filter(|_| number != TAIL_CALL)?;
        let given = helper::name(id).and_then(|name| self.functions.get(name.as_str()).cloned());
        given.or_else(|| helper::resolve(id))
    }
}

fn kernel_name(number: u32) -> Option<String> {
    i32::try_from(number).ok().and_then(helper::name)
}
