//! C functions from shared libraries, called by name with the C calling convention.
//!
//! The BTF prototype of the extern decides how each register travels. No libffi: a BPF call has five arguments,
//! and in the C ABIs we run on, integers and floats are numbered separately. So one function type with five
//! integers followed by five doubles serves every prototype: a callee looks only at the registers it has
//! parameters for. Two result classes and the variadic form make four types.
//!
//! In the sandbox only scalar prototypes are allowed: a C function would follow any pointer out of the arena.
//! The prototype is the object's word, which nobody can check: an object that declares `free(unsigned long)` may
//! call it. So naming a library trusts the object with every function in it.

use std::error::Error;
use std::ffi::OsStr;
use std::sync::Arc;

use twinbpf_vm::host::HostFn;
use twinbpf_vm::program::{Signature, ValType};

type Integers = unsafe extern "C" fn(u64, u64, u64, u64, u64, f64, f64, f64, f64, f64) -> u64;
type Floats = unsafe extern "C" fn(u64, u64, u64, u64, u64, f64, f64, f64, f64, f64) -> f64;
type VariadicIntegers = unsafe extern "C" fn(u64, ...) -> u64;
type VariadicFloats = unsafe extern "C" fn(u64, ...) -> f64;

/// A shared library that a program may call into.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    name: Arc<str>,
    library: Arc<libloading::Library>,
}

/// Why a C function cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DlError {
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
         can be called there, pointers need --trust, which this version does not have yet"
    )]
    Pointer {
        /// Where it was found.
        library: Arc<str>,
    },
    /// A struct by value, or more than five parameters.
    #[error("its prototype passes something that does not fit into registers; library {library} cannot be called")]
    Unsupported {
        /// Where it was found.
        library: Arc<str>,
    },
}

impl Library {
    /// Opens a library by path or by the name the system's loader knows.
    pub(crate) fn open(name: &str) -> Result<Library, DlError> {
        let shared: Arc<str> = name.into();
        // SAFETY: loading runs the library's initialisers. The user named the library to have its code run.
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

    /// The function with this name, if the library has it.
    pub(crate) fn function(&self, name: &str, signature: Option<&Signature>) -> Option<Result<HostFn, DlError>> {
        // SAFETY: only the address is taken here; no type is relied on until the call.
        let symbol = unsafe { self.library.get::<*const ()>(name.as_bytes()) }.ok()?;
        let address = (*symbol) as usize;
        if address == 0 {
            return None;
        }
        Some(self.typed(signature).map(|signature| self.host_fn(name, address, signature)))
    }

    /// The prototype, if the sandbox may call it.
    fn typed<'a>(&self, signature: Option<&'a Signature>) -> Result<&'a Signature, DlError> {
        let library = || Arc::clone(&self.name);
        let signature = signature.ok_or_else(|| DlError::NoPrototype { library: library() })?;
        let mut types = signature.params.iter().chain([&signature.result]);
        if types.clone().any(|ty| *ty == ValType::Pointer) {
            return Err(DlError::Pointer { library: library() });
        }
        let void = signature.params.contains(&ValType::Void);
        if void || signature.params.len() > 5 || types.any(|ty| *ty == ValType::Unsupported) {
            return Err(DlError::Unsupported { library: library() });
        }
        Ok(signature)
    }

    fn host_fn(&self, name: &str, address: usize, signature: &Signature) -> HostFn {
        let library = Arc::clone(&self.library);
        let types = signature.clone();
        let body = move |_: &mut dyn twinbpf_vm::host::Activation, args: &[u64; 5]| {
            let _loaded = &library;
            Ok(call(address, &types, args))
        };
        HostFn::new(name, signature.clone(), Arc::new(body))
    }
}

/// Calls the C function at `address`, which `signature` describes.
fn call(address: usize, signature: &Signature, args: &[u64; 5]) -> u64 {
    let mut i = [0u64; 5];
    let mut f = [0f64; 5];
    let (mut integers, mut floats) = (0, 0);
    for (index, arg) in args.iter().enumerate() {
        // What follows the fixed parameters is passed as integers: C tells nothing more about it.
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
    let is_float = matches!(signature.result, ValType::Float { .. });
    let target = address as *const ();
    // SAFETY: `target` is a function of a library that the caller keeps loaded, and the object declares it with
    // `signature`: scalars only, at most five, so every parameter is in the register its class and position
    // give it here, and a callee ignores the other argument registers. The result class picks the type.
    let raw = unsafe {
        match (signature.variadic, is_float) {
            (false, false) => std::mem::transmute::<*const (), Integers>(target)(
                i[0], i[1], i[2], i[3], i[4], f[0], f[1], f[2], f[3], f[4],
            ),
            (false, true) => std::mem::transmute::<*const (), Floats>(target)(
                i[0], i[1], i[2], i[3], i[4], f[0], f[1], f[2], f[3], f[4],
            )
            .to_bits(),
            (true, false) => std::mem::transmute::<*const (), VariadicIntegers>(target)(
                i[0], i[1], i[2], i[3], i[4], f[0], f[1], f[2], f[3], f[4],
            ),
            (true, true) => std::mem::transmute::<*const (), VariadicFloats>(target)(
                i[0], i[1], i[2], i[3], i[4], f[0], f[1], f[2], f[3], f[4],
            )
            .to_bits(),
        }
    };
    extend(raw, signature.result)
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
