//! Hooks of security modules and of control groups.

use twinbpf_btf::Type;
use twinbpf_loader::section::TABLE;

use super::functions::{describe, try_load};
use super::{AttachPoint, Catalog, LeftOut, Pattern, programs, types};
use crate::prog::{AttachType, ProgType};

/// Functions of the kernel that are hooks of `BPF_PROG_TYPE_LSM` (kernel/bpf/bpf_lsm.c).
const HOOK: &str = "bpf_lsm_";
/// Hooks to try.
const TRIED: usize = 8;

pub(super) fn security(catalog: &mut Catalog, pattern: &Pattern, arguments: bool) {
    let btf = match types() {
        Ok(btf) => btf,
        Err(why) => {
            if pattern.may_match_kind("lsm") {
                catalog.left_out.push(LeftOut { kind: "lsm", count: 0, why });
            }
            return;
        }
    };
    let hook = |id| match btf.type_by_id(id) {
        Some(Type::Func { .. }) => btf.name(id).strip_prefix(HOOK).map(|name| (name.to_owned(), id)),
        _ => None,
    };
    let (names, ids): (Vec<_>, Vec<_>) = btf.ids().filter_map(hook).unzip();
    let can = || {
        let modules = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
        if !modules.is_empty() && !modules.trim().split(',').any(|name| name == "bpf") {
            return Err(format!(
                "bpf is not among the security modules, which are {}; lsm= at boot adds it",
                modules.trim()
            ));
        }
        // Some hooks are closed to programs.
        let mut refused = None;
        for id in ids.iter().take(TRIED) {
            match try_load(ProgType::Lsm, AttachType::LsmMac, *id) {
                Ok(_) => return Ok(()),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(()), |error| Err(format!("tried: {error}")))
    };
    let added = catalog.add("lsm", pattern, names, can);
    if arguments {
        describe(catalog, added, HOOK, 0);
    }
}

/// Kinds of programs that a control group takes, all of which can be attached to any.
pub(super) fn control_groups(catalog: &mut Catalog, pattern: &Pattern) {
    let rows = TABLE.iter().filter(|row| row.pattern.starts_with("cgroup") && pattern.wants(row.pattern));
    let mut left: Vec<LeftOut> = Vec::new();
    for row in rows {
        let point = AttachPoint { attach: Some("/sys/fs/cgroup".to_owned()), ..AttachPoint::new(row.pattern) };
        match programs(row.prog) {
            Ok(()) => catalog.attach_points.push(point),
            Err(why) => match left.iter_mut().find(|left| left.why == why) {
                Some(left) => left.count += 1,
                None => left.push(LeftOut { kind: "cgroup", count: 1, why }),
            },
        }
    }
    catalog.left_out.extend(left);
}
