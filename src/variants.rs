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
        let mut variants = Some(variants);
        let mut once = |program: &Program| variants.take().map(|variants| variants(program).into_iter().collect());
        let (pre, mut instances) =
            self.instances_of_each(object, &[name], |program| once(program).unwrap_or_default())?;
        Ok((pre, instances.remove(0)))
    }

    /// Instances of several programs, each as by [`Linker::instances`], and all sharing maps and globals. The other programs
    /// of the object come along where they can.
    ///
    /// # Errors
    /// As [`Linker::instances`].
    pub fn instances_of_each(
        &self,
        object: &Object,
        names: &[&str],
        mut variants: impl FnMut(&Program) -> Vec<Option<Program>>,
    ) -> Result<(InstancePre<T>, Vec<Instances<Entry>>), Error> {
        let mut linked = self.link(object, Some(names))?;
        let mut all = Vec::new();
        for name in names {
            let Some(index) = linked.program(name) else {
                let spec = object.program(name);
                let failure = linked.failures.into_iter().find(|failure| Some(failure.spec) == spec);
                return Err(failure.expect("what does not link has a reason").error.into());
            };
            let info = linked.infos[index].clone();
            let mut own = Vec::new();
            for (number, variant) in variants(&linked.programs[index]).into_iter().enumerate() {
                let variant = variant.filter(|variant| !variant.insns.is_empty()).map(|mut variant| {
                    variant.name = Arc::from(format!("{name}#{number}"));
                    variant
                });
                own.push(variant.as_ref().map(|variant| Arc::clone(&variant.name)));
                linked.infos.extend(variant.is_some().then(|| info.clone()));
                linked.programs.extend(variant);
            }
            all.push(own);
        }
        let needed: Vec<&str> = all.iter().flatten().flatten().map(|name| &**name).collect();
        let pre = self.build(object, linked, Some(&needed))?;
        let entry = |name: &Option<Arc<str>>| name.as_ref().map(|name| pre.program(name).expect("it was needed"));
        let instances = all.iter().map(|names| names.iter().map(entry).collect()).collect();
        Ok((pre, instances))
    }
}
