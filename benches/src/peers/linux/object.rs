//! Programs of an object in the kernel, as they are, through the product's own loader.

use twinbpf_kernel::load::{LoadOptions, Pinning};
use twinbpf_kernel::system::System;
use twinbpf_kernel::{Loaded, Map, Prog, TestRun, TestRunResult};
use twinbpf_loader::Object;
use twinbpf_loader::kernel::KernelOptions;
use twinbpf_loader::section::Attach;

/// Loaded programs with their maps.
pub struct InKernel {
    loaded: Loaded,
}

impl InKernel {
    /// Loads these programs of an object.
    ///
    /// # Errors
    /// The linker or the kernel refuses one of them, or a map.
    pub fn load(object: &Object, programs: &[&str]) -> Result<InKernel, String> {
        let index = |name: &&str| object.program(name).ok_or_else(|| format!("no program `{name}`"));
        let chosen = programs.iter().map(index).collect::<Result<Vec<_>, _>>()?;
        let linked =
            object.link_kernel(System::get(), &KernelOptions { programs: Some(chosen), ..KernelOptions::default() });
        if let Some(failure) = linked.failures.first() {
            return Err(failure.error.to_string());
        }
        let options = LoadOptions { pinning: Pinning::Ignore, ..LoadOptions::default() };
        let loaded = twinbpf_kernel::load(object, &linked, &options);
        if let Some(failure) = loaded.failures.first() {
            return Err(failure.to_string().lines().next().unwrap_or_default().to_owned());
        }
        Ok(InKernel { loaded })
    }

    /// The program with this name.
    ///
    /// # Errors
    /// It was not loaded.
    pub fn program(&self, name: &str) -> Result<&Prog, String> {
        let loaded = self.loaded.program(name).ok_or_else(|| format!("no program `{name}` in the kernel"))?;
        Ok(&loaded.prog)
    }

    /// The map with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn map(&self, name: &str) -> Result<&Map, String> {
        self.loaded.map(name).ok_or_else(|| format!("no map `{name}` in the kernel"))
    }

    /// Runs a program on a packet, so often.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn run(&self, program: &str, data: &[u8], repeat: u32) -> Result<TestRunResult, String> {
        let run = TestRun { data, headroom: HEADROOM, repeat, ..TestRun::default() };
        self.program(program)?.test_run(&run).map_err(|error| error.to_string())
    }
}

/// Bytes that a packet may grow by.
const HEADROOM: usize = 512;

/// Makes all programs of an object those of TC: the kernel repeats such a program at once and says how long it takes.
pub fn as_classifiers(object: &mut Object) {
    for program in &mut object.programs {
        program.attach = Attach::parse("tc");
    }
}
