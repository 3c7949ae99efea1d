//! Every function of an object, and every on-stack replacement entry, through the verifier of machine code.

use std::sync::{Arc, Mutex, PoisonError};

use twinbpf::{Config, Engine, EngineKind, InstancePre, Linker};
use twinbpf_isa::program::{ExternKind, Signature, ValType};
use twinbpf_jit::{Code, JitError, Memory, Options, loop_headers};
use twinbpf_loader::Object;
use twinbpf_verify::Statistics;
use twinbpf_vm::image::Image;

use crate::backend::{JitMode, jit_modes};

/// What the verifier says of some programs.
#[derive(Debug, Default)]
pub struct Verdict {
    /// What it proved, in all modes together.
    pub statistics: Statistics,
    /// What it rejects, or what else keeps a function from having native code.
    pub failures: Vec<String>,
    /// Programs that do not link here.
    pub unlinked: Vec<String>,
}

/// Modes whose code can be verified.
pub fn verified_modes() -> impl Iterator<Item = JitMode> {
    jit_modes().filter(|mode| mode.memory != Memory::Trusted)
}

/// Compiles all programs of an object in these modes, and verifies them. What it calls that is not known here is taken for
/// host functions.
///
/// # Errors
/// The object cannot be opened or linked.
pub fn object(name: &str, bytes: &[u8], modes: &[JitMode]) -> Result<Verdict, String> {
    let object = Object::open(name, bytes).map_err(|error| error.to_string())?;
    let pre = instantiate(&object)?;
    let unlinked = pre.warnings().iter().map(ToString::to_string).collect();
    let mut verdict = Verdict { unlinked, ..Verdict::default() };
    for mode in modes {
        image(pre.image(), *mode, &mut verdict);
    }
    Ok(verdict)
}

pub(crate) fn instantiate(object: &Object) -> Result<InstancePre<()>, String> {
    let config = Config::new().engine(EngineKind::Interp).frame_size(4096);
    let engine = Engine::new(config).map_err(|error| error.to_string())?;
    let mut linker = Linker::<()>::new(&engine);
    let known = linker.check(object).map_err(|error| error.to_string())?.externs;
    let functions = object.externs.iter().zip(&known).filter(|(symbol, _)| symbol.kind == ExternKind::Function);
    for (symbol, resolution) in functions {
        if !resolution.is_resolved() {
            let params = vec![ValType::Int { size: 8, signed: false }; 5];
            let result = ValType::Int { size: 8, signed: false };
            let signature = symbol.signature.clone();
            linker.elsewhere(&symbol.name, signature.unwrap_or(Signature { params, variadic: false, result }));
        }
    }
    linker.instantiate_programs(object, &[]).map_err(|error| error.to_string())
}

fn image(image: &Arc<Image>, mode: JitMode, verdict: &mut Verdict) {
    let words = mode.words().join(",");
    let found = image_by(image, mode.options(), |code| mode.compile(code));
    verdict.failures.extend(found.failures.into_iter().map(|failure| format!("{words}: {failure}")));
    verdict.statistics += found.statistics;
}

/// Compiles all functions of an image and all its loops, and verifies them.
pub fn image_with(image: &Arc<Image>, options: Options) -> Verdict {
    image_by(image, options, Code::compile_each)
}

/// The same, with functions that `compile` compiles.
fn image_by(
    image: &Arc<Image>,
    options: Options,
    compile: impl Fn(&Code) -> Result<Vec<Option<JitError>>, JitError>,
) -> Verdict {
    let proved = Arc::new(Mutex::new(Statistics::default()));
    let sum = Arc::clone(&proved);
    let code = Code::new(Arc::clone(image), options).map(|code| {
        code.with_check(Arc::new(move |emitted| {
            let (statistics, rejected) = twinbpf::verify::check(emitted);
            *sum.lock().unwrap_or_else(PoisonError::into_inner) += statistics;
            rejected
        }))
    });
    let mut verdict = Verdict::default();
    let code = match code {
        Ok(code) => code,
        Err(error) => {
            verdict.failures.push(error.to_string());
            return verdict;
        }
    };
    match compile(&code) {
        Ok(failures) => verdict.failures.extend(failures.into_iter().flatten().map(|failure| failure.to_string())),
        Err(error) => verdict.failures.push(error.to_string()),
    }
    for pc in loop_headers(image) {
        if let Err(error) = code.compile_loop(pc) {
            verdict.failures.push(format!("loop at {pc}: {error}"));
        }
    }
    verdict.statistics = *proved.lock().unwrap_or_else(PoisonError::into_inner);
    verdict
}
