//! C functions from shared libraries, called by name with the C calling convention.
//!
//! The BTF prototype of the extern decides how each register travels. No libffi: a BPF call has five arguments,
//! and in the C ABIs we run on, integers and floats are numbered separately. So integers followed by doubles serve
//! every prototype: a callee reads only the registers it has parameters for.
//!
//! In the sandbox the prototype is the host's word ([`prototype`]), which that of the object must equal, and has only
//! scalars: a C function would follow any pointer out of the arena, also one that an object declares as a number. A
//! trusted program passes what it likes, addresses of its functions too, by the prototypes of its object. A fault inside
//! a C function ends the program and poisons its engine.
#![expect(unsafe_code, reason = "loads and calls shared libraries")]

mod prototype;

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{CStr, OsStr};
use std::path::Path;
use std::sync::Arc;

use twinbpf_isa::program::{Signature, ValType};
use twinbpf_vm::host::{Activation, HostFn};
use twinbpf_vm::recover::{self, Abort, Form};
use twinbpf_vm::trap::Trap;

/// A shared library that a program may call into.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    name: Arc<str>,
    library: Arc<libloading::Library>,
}

/// Why a C function cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DlError {
    /// The library cannot be loaded.
    #[error("cannot load library {name}: {why}")]
    Load {
        /// As the user wrote it.
        name: Arc<str>,
        /// The loader's words.
        why: String,
    },
    /// The object does not say how to call it.
    #[error("library {library} has it, but the object does not say its type; declare it in C and compile with -g")]
    NoPrototype {
        /// Where it was found.
        library: Arc<str>,
    },
    /// A pointer would leave the sandbox.
    #[error(
        "its prototype has a pointer, and library {library} would follow it out of the sandbox; only scalar prototypes \
         can be called there; pass --trust (Engine::new_trusted) if the program may follow any pointer"
    )]
    Pointer {
        /// Where it was found.
        library: Arc<str>,
    },
    /// Only the object says how to call it, and runs in the sandbox.
    #[error(
        "library {library} has it, but a prototype that only the object declares does not count in the sandbox: a number \
         may be a pointer to the function; if it is safe to call with any arguments, declare it with --extern '{prototype}' \
         (Linker::declare), or pass --trust (Engine::new_trusted)"
    )]
    Undeclared {
        /// Where it was found.
        library: Arc<str>,
        /// The object's prototype.
        prototype: String,
    },
    /// The object and the host declare different types.
    #[error("the object declares '{object}', but the host '{host}' (library {library}); both must be the same")]
    Mismatch {
        /// Where it was found.
        library: Arc<str>,
        /// The object's prototype.
        object: String,
        /// Prototype that the host declared.
        host: String,
    },
    /// What [`Linker::declare`](crate::Linker::declare) got is not C as it should be.
    #[error("cannot read the declaration {why}")]
    Declaration {
        /// The declaration, and what is wrong.
        why: String,
    },
    /// A struct by value, or more than five parameters.
    #[error("its prototype passes something that does not fit into registers; library {library} cannot be called")]
    Unsupported {
        /// Where it was found.
        library: Arc<str>,
    },
}

/// Prototypes that the host declares, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declarations {
    prototypes: BTreeMap<Arc<str>, Signature>,
}

impl Declarations {
    /// Adds those of a text in C. Of two for one name the later counts.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), DlError> {
        self.prototypes.extend(prototype::parse(text).map_err(|why| DlError::Declaration { why })?);
        Ok(())
    }
}

/// The name of the file that a function of a library lies in: that of one which the library depends on may be another.
fn file_of(address: usize) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: takes any address, and fills `info` in if it is one of a loaded file.
    let info = unsafe {
        if libc::dladdr(address as *const libc::c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: the path of a loaded file, which stays loaded while its library is.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_str().ok()?;
    Some(Path::new(path).file_name()?.to_str()?.to_owned())
}

impl Library {
    /// Opens a library by path or by the name the system's loader knows.
    ///
    /// # Safety
    /// As [`Linker::library`](crate::Linker::library).
    pub(crate) unsafe fn open(name: &str) -> Result<Library, DlError> {
        let shared: Arc<str> = name.into();
        // SAFETY: loading runs the library's initialisers, which the caller answers for.
        match unsafe { libloading::Library::new(OsStr::new(name)) } {
            Ok(library) => Ok(Library { name: shared, library: Arc::new(library) }),
            Err(error) => {
                let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                Err(DlError::Load { name: shared, why })
            }
        }
    }

    /// As the user wrote it.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The function with this name, if the library has it. `object` is the prototype in the object; a trusted one
    /// believes it.
    pub(crate) fn function(
        &self,
        name: &str,
        object: Option<&Signature>,
        declared: &Declarations,
        trusted: bool,
    ) -> Option<Result<HostFn, DlError>> {
        // SAFETY: only the address is taken here; no type is relied on until the call.
        let symbol = unsafe { self.library.get::<*const ()>(name.as_bytes()) }.ok()?;
        let address = (*symbol) as usize;
        if address == 0 {
            return None;
        }
        let host = declared.prototypes.get(name).cloned();
        let host = host.or_else(|| prototype::pure_function(&file_of(address)?, name));
        let signature = match trusted {
            true => object.or(host.as_ref()).ok_or_else(|| DlError::NoPrototype { library: Arc::clone(&self.name) }),
            false => self.sandboxed(name, object, host.as_ref()),
        };
        let callable = signature.and_then(|signature| self.callable(signature));
        Some(callable.map(|signature| self.host_fn(name, address, signature)))
    }

    /// The host's prototype, if the object's is the same and it has no pointer.
    fn sandboxed<'a>(
        &self,
        name: &str,
        object: Option<&Signature>,
        host: Option<&'a Signature>,
    ) -> Result<&'a Signature, DlError> {
        let library = || Arc::clone(&self.name);
        let has_pointer = |signature: &Signature| {
            signature.params.iter().chain([&signature.result]).any(|ty| *ty == ValType::Pointer)
        };
        if object.is_some_and(has_pointer) || host.is_some_and(has_pointer) {
            return Err(DlError::Pointer { library: library() });
        }
        let Some(host) = host else {
            let prototype = object.map_or_else(|| format!("... {name}(...)"), |object| prototype::text(name, object));
            return Err(DlError::Undeclared { library: library(), prototype });
        };
        match object {
            Some(object) if object != host => {
                let (object, host) = (prototype::text(name, object), prototype::text(name, host));
                Err(DlError::Mismatch { library: library(), object, host })
            }
            Some(_) | None => Ok(host),
        }
    }

    /// The prototype, if registers can hold what it passes.
    fn callable<'a>(&self, signature: &'a Signature) -> Result<&'a Signature, DlError> {
        let library = || Arc::clone(&self.name);
        let mut types = signature.params.iter().chain([&signature.result]);
        let void = signature.params.contains(&ValType::Void);
        if void || signature.params.len() > 5 || types.any(|ty| *ty == ValType::Unsupported) {
            return Err(DlError::Unsupported { library: library() });
        }
        Ok(signature)
    }

    fn host_fn(&self, name: &str, address: usize, signature: &Signature) -> HostFn {
        let library = Arc::clone(&self.library);
        let (types, label) = (signature.clone(), name.to_owned());
        let body = move |activation: &mut dyn Activation, args: &[u64; 5]| {
            let _loaded = &library;
            call(activation, address, &types, args).map_err(|abort| match *abort {
                Abort::Trap(trap) => trap,
                Abort::Fault(fault) => {
                    activation.runtime().view.arena().poison();
                    fault.in_function(&label)
                }
            })
        };
        let function = HostFn::new(name, signature.clone(), Arc::new(body));
        // SAFETY: the body keeps the library loaded. The caller of `Linker::library`, who named it, answers for what
        // programs pass to its functions by the prototypes that objects declare.
        unsafe { function.with_c(address as u64) }
    }
}

/// Calls the C function at `address`, which `signature` describes.
fn call(
    mut activation: &mut dyn Activation,
    address: usize,
    signature: &Signature,
    args: &[u64; 5],
) -> Result<u64, Box<Abort>> {
    let mut i = [0u64; 6];
    let mut f = [0f64; 8];
    let (mut integers, mut floats) = (0, 0);
    for (index, arg) in args.iter().enumerate() {
        // What follows the fixed parameters is passed as integers: C has no types for it.
        let rest = ValType::Int { size: 8, signed: false };
        match signature.params.get(index).copied().unwrap_or(rest) {
            ValType::Float { size } => {
                let mask = if size == 4 { 0xffff_ffff } else { u64::MAX };
                f[floats] = f64::from_bits(*arg & mask);
                floats += 1;
            }
            ValType::Int { .. } | ValType::Pointer | ValType::Void | ValType::Unsupported => {
                i[integers] = extend(*arg, signature.params.get(index).copied().unwrap_or(rest));
                integers += 1;
            }
        }
    }
    let form = Form { variadic: signature.variadic, float: matches!(signature.result, ValType::Float { .. }) };
    let data = (&raw mut activation).cast();
    // SAFETY: `address` is a function of a library that the caller keeps loaded, and the object declares it with
    // `signature`: at most five parameters, each in the register its class and position give it here. Pointers are
    // passed by trusted programs only. `data` is what `call_back` expects, and nothing else uses it meanwhile.
    let raw = unsafe { recover::call_c(address, form, &i, &f, data, call_back) }?;
    Ok(extend(raw, signature.result))
}

/// The C function calls a function of the program.
///
/// # Safety
/// `data` points to a `&mut dyn Activation` that is not in use.
unsafe fn call_back(data: *mut (), function: u64, args: &[u64; 5]) -> Result<u64, Trap> {
    // SAFETY: the caller promises it.
    let activation = unsafe { &mut *data.cast::<&mut dyn Activation>() };
    activation.call(function, *args)
}

/// A C value in 64 bits: the callee may leave anything above the type's own bits.
fn extend(value: u64, ty: ValType) -> u64 {
    match ty {
        ValType::Int { size: 1, signed: true } => value as i8 as u64,
        ValType::Int { size: 2, signed: true } => value as i16 as u64,
        ValType::Int { size: 4, signed: true } => value as i32 as u64,
        ValType::Int { size: 1, signed: false } => value as u8 as u64,
        ValType::Int { size: 2, signed: false } => value as u16 as u64,
        ValType::Int { size: 4, signed: false } | ValType::Float { size: 4 } => value as u32 as u64,
        ValType::Int { .. } | ValType::Float { .. } | ValType::Pointer => value,
        ValType::Void | ValType::Unsupported => 0,
    }
}
