//! [`Object::link_kernel`]: links an object for the kernel, in the order of libbpf's `bpf_object_load`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::externs;
use super::stream::Builder;
use super::{
    FORMATS, Kernel, KernelLinked, KernelMap, KernelOptions, KernelProgram, attach, exception, reach, struct_ops, types,
};
use crate::error::{Cause, Error};
use crate::kconfig::Kconfig;
use crate::link::{CoreTypes, Failure, Functions, Layout, Planner};
use crate::object::{ArenaData, Object, Reference, Role};
use crate::section::SectionKind;

impl Object {
    /// Indices of the programs that are loaded by default: entries with a program type, without `?` in the section.
    pub fn kernel_programs(&self) -> Vec<usize> {
        let by_default = |(index, spec): (usize, &crate::ProgramSpec)| {
            let kernel = spec.attach.prog_type().is_some() && !matches!(spec.attach.kind, SectionKind::Script(_));
            (spec.role == Role::Entry && spec.attach.autoload && kernel).then_some(index)
        };
        self.programs.iter().enumerate().filter_map(by_default).collect()
    }

    /// Links programs for a kernel. What is wrong with one program leaves the others alone.
    pub fn link_kernel(&self, kernel: &dyn Kernel, options: &KernelOptions) -> KernelLinked {
        let wanted = options.programs.clone().unwrap_or_else(|| self.kernel_programs());
        let mut planner = Planner::new(self);
        let mut failures = Vec::new();
        let mut layouts: Vec<Layout> = Vec::new();
        let wanted = wanted.into_iter().filter(|index| *index < self.programs.len());
        if self.endian != kernel.endian() {
            return refuse_all(&mut planner, wanted, kernel);
        }
        for spec in wanted {
            match lay_out(&mut planner, spec) {
                Ok(layout) => layouts.push(layout),
                Err(error) => failures.push(Failure { spec, error }),
            }
        }
        let kconfig = Kconfig::new(self, kernel, options.config.as_deref());
        let functions: BTreeSet<usize> = layouts.iter().flat_map(|layout| layout.order.iter().copied()).collect();
        let refs = functions.iter().flat_map(|index| self.programs[*index].refs.values());
        let used = refs.filter_map(|target| match target {
            Ok(Reference::Extern(index)) => Some(*index),
            Ok(Reference::Call(_) | Reference::Address(_) | Reference::Map(_) | Reference::MapValue { .. })
            | Err(_) => None,
        });
        let symbols = externs::resolve(self, kernel, kconfig.as_ref(), &used.collect(), options.output);
        let functions = Functions::relocate(self, functions, || core_types(kernel, options));
        let arena = self.arena_data(kernel.page_size(), kernel.takes_every_offset());
        let mut builder = Builder {
            planner,
            functions,
            symbols: &symbols,
            absent: &options.absent,
            arena: arena.as_ref(),
            kconfig: self.maps.len(),
            formats: self.maps.iter().position(|map| options.output && &*map.name == FORMATS),
        };
        let mut programs = Vec::new();
        let ops = struct_ops::resolve(self, kernel);
        for layout in layouts {
            let root = layout.order[0];
            let spec = &self.programs[root];
            let target = attach::target(&spec.attach, options.targets.get(&root), kernel);
            let target = target.map_err(|cause| builder.planner.error(root, spec, None, cause));
            let (own, member) = ops.programs.get(&root).cloned().unzip();
            match target.and_then(|target| builder.program(&layout, target.or(own))) {
                Ok(program) => programs.push(KernelProgram { member, ..program }),
                Err(error) => failures.push(Failure { spec: root, error }),
            }
        }
        failures.sort_by_key(|failure| failure.spec);
        let maps = self.kernel_maps(kconfig, arena.as_ref());
        for program in programs.iter_mut().filter(|program| !program.poisons.is_empty()) {
            reach::mark(program, &maps);
        }
        KernelLinked { programs, failures, maps, struct_ops: ops.values, fd_array: symbols.fd_array }
    }

    fn kernel_maps(&self, kconfig: Option<Kconfig>, arena: Option<&ArenaData>) -> Vec<KernelMap> {
        let mut specs: Vec<_> = self.maps.iter().cloned().chain(kconfig.map(|kconfig| kconfig.spec)).collect();
        ArenaData::apply(arena, &mut specs);
        let described = types::map_types(self);
        specs.into_iter().map(|spec| described.describe(spec)).collect()
    }
}

/// What becomes of an object of the other byte order (libbpf's `bpf_object__check_endianness`): nothing, as its data
/// would be read in the wrong byte order, too.
fn refuse_all(planner: &mut Planner<'_>, wanted: impl Iterator<Item = usize>, kernel: &dyn Kernel) -> KernelLinked {
    let cause = Cause::ByteOrder { object: planner.object.endian, kernel: kernel.endian() };
    let failure = |spec| Failure { spec, error: planner.error(spec, planner.spec(spec), None, cause.clone()) };
    let failures = wanted.map(failure).collect();
    KernelLinked {
        programs: Vec::new(),
        failures,
        maps: Vec::new(),
        struct_ops: planner.object.struct_ops.iter().map(|_| Err(cause.clone())).collect(),
        fd_array: Vec::new(),
    }
}

/// The functions of a program, the one that handles its exceptions last.
fn lay_out(planner: &mut Planner<'_>, root: usize) -> Result<Layout, Error> {
    let mut layout = planner.layout(root)?;
    let spec = planner.spec(root);
    let callback = exception::callback(planner.object, spec);
    if let Some(callback) = callback.map_err(|cause| planner.error(root, spec, None, cause))? {
        planner.append(&mut layout, root, callback)?;
    }
    whole_functions(planner, layout)
}

/// A layout whose functions all begin where a symbol does. The kernel gets no other: libbpf, which knows functions by
/// their symbols, would have such a call lead to the symbol's start.
fn whole_functions(planner: &mut Planner<'_>, layout: Layout) -> Result<Layout, Error> {
    for index in &layout.order {
        let spec = planner.spec(*index);
        for (pc, target) in &spec.refs {
            let Ok(Reference::Call(callee) | Reference::Address(callee)) = target else { continue };
            let callee = planner.spec(*callee);
            if let Some(outer) = callee.inside.map(|outer| planner.spec(outer)) {
                let cause = Cause::CallInside { function: outer.name.clone(), offset: callee.start - outer.start };
                return Err(planner.error(layout.order[0], spec, Some(*pc), cause));
            }
        }
    }
    Ok(layout)
}

/// Whose types CO-RE takes.
fn core_types<'t>(kernel: &'t dyn Kernel, options: &'t KernelOptions) -> CoreTypes<'t> {
    if let [first, rest @ ..] = options.core.as_slice() {
        return CoreTypes::Some(&first.btf, first.name.clone(), Box::new(move || rest));
    }
    match kernel.btf() {
        Some(btf) => CoreTypes::Some(btf, Arc::from("vmlinux"), Box::new(move || kernel.modules())),
        None => CoreTypes::None,
    }
}
