//! Variants of one program in the machine, as the kernel crate has them of programs in the kernel.

use std::sync::Arc;

use twinbpf_isa::program::Program;
use twinbpf_loader::{Instances, Object};

use crate::error::Error;
use crate::instance::{Entry, InstancePre};
use crate::linker::Linker;

impl<T: Send + 'static> Linker<T> {
    /// Instances of one program: `variants` gets it linked and gives copies of it, each with instructions of its own
    /// (a prologue by [`Program::splice`], for example). `None`, and a variant without instructions, is left out. All
    /// share the maps and globals of the object. Number 3 of program `p` is called `p#3` in traps.
    ///
    /// # Errors
    /// There is no such program, or the first variant that cannot run.
    pub fn instances<V>(
        &self,
        object: &Object,
        name: &str,
        variants: impl FnOnce(&Program) -> V,
    ) -> Result<(InstancePre<T>, Instances<Entry>), Error>
    where
        V: IntoIterator<Item = Option<Program>>,
    {
        let mut linked = self.link(object, Some(&[name]))?;
        let Some(index) = linked.program(name) else {
            let spec = object.program(name);
            let failure = linked.failures.into_iter().find(|failure| Some(failure.spec) == spec);
            return Err(failure.expect("what does not link has a reason").error.into());
        };
        let info = linked.infos[index].clone();
        let mut names = Vec::new();
        for (number, variant) in variants(&linked.programs[index]).into_iter().enumerate() {
            let variant = variant.filter(|variant| !variant.insns.is_empty()).map(|mut variant| {
                variant.name = Arc::from(format!("{name}#{number}"));
                variant
            });
            names.push(variant.as_ref().map(|variant| Arc::clone(&variant.name)));
            linked.infos.extend(variant.is_some().then(|| info.clone()));
            linked.programs.extend(variant);
        }
        let needed: Vec<&str> = names.iter().flatten().map(|name| &**name).collect();
        let pre = self.build(object, linked, Some(&needed))?;
        let entry = |name: &Option<Arc<str>>| name.as_ref().map(|name| pre.program(name).expect("it was needed"));
        let instances = names.iter().map(entry).collect();
        Ok((pre, instances))
    }
}
