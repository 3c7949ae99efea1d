//! Programs compiled ahead of time: object files of them, and shared libraries made of those.

use twinbpf_jit::aot::{self, Target};

use crate::{Error, InstancePre, native};

impl<T: Send + 'static> InstancePre<T> {
    /// The programs as a relocatable object file for `target`: C functions `uint64_t NAME(struct twinbpf_context *)`
    /// with `prefix` before their names (`twinbpf/context.h` has the context). A shared library made of it can be
    /// given to [`Linker::compiled`](crate::Linker::compiled). Settings are those of the engine.
    ///
    /// # Errors
    /// There is no compiler for the target, it cannot compile a function, or a program's name is no name of a C function.
    pub fn object_file(&self, target: &Target, prefix: &str) -> Result<Vec<u8>, Error> {
        let options = native::options(self.engine());
        Ok(aot::object(self.image(), options, target, self.source().origin(), prefix)?)
    }
}

#[cfg(feature = "dl")]
pub use library::Compiled;

#[cfg(feature = "dl")]
#[expect(unsafe_code, reason = "loads and calls shared libraries")]
mod library {
    use std::fmt;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::Arc;

    use twinbpf_jit::Options;
    use twinbpf_jit::aot::{Artifact, SYMBOL};
    use twinbpf_vm::host::native::Native;
    use twinbpf_vm::image::Image;

    use crate::error::CompiledError;
    use crate::source::Source;
    use crate::{Error, verify};

    /// A shared library of compiled programs.
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use twinbpf::{Compiled, Config, Engine, Linker, Object};
    ///
    /// # let object = Object::open("score.bpf.o", include_bytes!("../corpus/embed/score.bpf.o"))?;
    /// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
    /// // SAFETY: `cc -shared` has made it of what `InstancePre::object_file` gave.
    /// linker.compiled(unsafe { Compiled::open(Path::new("./score.so")) }?);
    /// let pre = linker.instantiate_pre(&object)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Clone)]
    pub struct Compiled {
        path: Arc<Path>,
        kept: Arc<Artifact>,
    }

    impl Compiled {
        /// Loads a shared library.
        ///
        /// # Errors
        /// It is no library of compiled programs ([`ErrorKind::Compiled`](crate::ErrorKind::Compiled)).
        ///
        /// # Safety
        /// Loading runs the library's initialisers, and programs run as the code in it, which nothing checks. It must
        /// be one that a C linker has made of what [`InstancePre::object_file`](crate::InstancePre::object_file) gave,
        /// unchanged, and other initialisers that were linked into it must be fit to be run.
        pub unsafe fn open(path: &Path) -> Result<Compiled, Error> {
            let load = |why: String| CompiledError::Load { path: path.to_owned(), why };
            // The loader would search for a bare name among the system's libraries.
            let file = path.canonicalize().map_err(|error| load(error.to_string()))?;
            // SAFETY: loading runs the library's initialisers, which the caller answers for.
            let library = unsafe { libloading::Library::new(&file) }.map_err(|error| load(error.to_string()))?;
            // SAFETY: only its address is used.
            let symbol = unsafe { library.get::<*const u8>(SYMBOL.as_bytes()) };
            let Ok(symbol) = symbol.map(|symbol| *symbol) else {
                return Err(load(format!("it has no symbol {SYMBOL}")).into());
            };
            let kept = |why| CompiledError::Artifact { path: path.to_owned(), why };
            // SAFETY: the symbol is data of at least this size in every library that defines it, and is loaded.
            let head = unsafe { std::slice::from_raw_parts(symbol, Artifact::HEAD) };
            let len = Artifact::len(head).map_err(kept)?;
            // SAFETY: the compiler that wrote this head wrote as many bytes as it says.
            let bytes = unsafe { std::slice::from_raw_parts(symbol, len) }.to_vec();
            // SAFETY: the caller answers for the library, which goes with the description.
            let kept = unsafe { Artifact::new(bytes, Box::new(library)) }.map_err(kept)?;
            Ok(Compiled { path: path.into(), kept })
        }

        /// Names of its programs.
        pub fn programs(&self) -> Vec<&str> {
            self.kept.programs()
        }

        /// Whether it was made of the object with these bytes.
        pub(crate) fn is_of(&self, digest: u128) -> bool {
            self.kept.is_of(digest)
        }

        pub(crate) fn other(&self, object: &Arc<str>) -> CompiledError {
            let made_of = self.kept.object().to_owned();
            CompiledError::OtherBytes { path: self.path.to_path_buf(), object: Arc::clone(object), made_of }
        }

        /// Its programs, the requested ones among them. All are linked, so that the image becomes the same.
        pub(crate) fn programs_with(&self, names: Option<&[&str]>) -> Result<Vec<&str>, CompiledError> {
            let known = self.programs();
            match names.unwrap_or(&[]).iter().find(|name| !known.contains(name)) {
                None => Ok(known),
                Some(name) => Err(CompiledError::NoProgram {
                    path: self.path.to_path_buf(),
                    program: (*name).to_owned(),
                    known: known.into_iter().map(str::to_owned).collect(),
                }),
            }
        }

        /// The code of an image.
        pub(crate) fn native(
            &self,
            image: &Image,
            options: Options,
            source: &Source,
            verify: bool,
        ) -> Result<Arc<dyn Native>, CompiledError> {
            let object = || Arc::clone(&source.object);
            let unfit = |why| CompiledError::Unfit { path: self.path.to_path_buf(), object: object(), why };
            let code = self.kept.code(image, options, source.origin()).map_err(unfit)?;
            if verify {
                self.verify(image)?;
            }
            Ok(code)
        }

        /// Checks the code as it lies in memory.
        fn verify(&self, image: &Image) -> Result<(), CompiledError> {
            let bytes = |range: Range<u64>| {
                let start = std::ptr::with_exposed_provenance(range.start as usize);
                // SAFETY: the compiler that wrote the description wrote where its functions are and how long, and the
                // library that holds them is loaded as long as `self.kept` lives.
                unsafe { std::slice::from_raw_parts::<u8>(start, (range.end - range.start) as usize) }
            };
            let functions = (0..).zip(self.kept.ranges()).map(|(index, range)| (index, range.start, bytes(range)));
            let mut functions: Vec<(u32, u64, &[u8])> = functions.collect();
            functions.sort_unstable_by_key(|function| function.1);
            verify::check_loaded(image, &functions).map_err(|(function, why)| CompiledError::Rejected {
                path: self.path.to_path_buf(),
                function: Arc::clone(&image.functions()[function as usize].name),
                why,
            })
        }
    }

    impl fmt::Debug for Compiled {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_tuple("Compiled").field(&self.path).finish()
        }
    }
}
