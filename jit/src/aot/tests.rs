//! The description of compiled code: what is written is read, and damage is noticed or harmless.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::sync::Arc;

use twinbpf_isa::{Reg, Size};
use twinbpf_vm::host::native::{Site, SiteKind};

use super::blob;
use super::facts::{self, Difference};
use super::{Artifact, ArtifactError, Cpu, Target, TargetError};
use crate::positions::Positions;
use crate::trap_sites::TrapSites;

fn sites() -> TrapSites {
    let access =
        |off, size, write| SiteKind::Access { base: Reg::R5, off, size, write, lead: off.unsigned_abs() as u8 % 8 };
    let kinds = [
        access(-32768, Size::B, false),
        access(32767, Size::Dw, true),
        SiteKind::Misaligned { size: Size::W },
        SiteKind::Frame,
        SiteKind::Failed,
        SiteKind::Linked,
        SiteKind::Interrupted,
        SiteKind::BadJump,
        SiteKind::NoReturn,
        SiteKind::Call,
    ];
    let pcs = [5, 3, 70_000, 0, u32::MAX, 1, 2, 3, 4, 5];
    let sites = pcs.into_iter().zip(kinds).map(|(pc, kind)| Site::new(pc, kind));
    TrapSites {
        len: 1000,
        sites: sites.collect(),
        traps: [(3, 0), (3, 249), (999, 7)].into(),
        pcs: [(0, 9), (10, 2), (500, 1 << 30)].into(),
        positions: Positions::default(),
    }
}

#[test]
fn tables_are_read_as_written() {
    let bytes = blob::write("key = value\n", &[sites(), sites()]);
    assert_eq!(blob::head(&bytes), Some((blob::VERSION, bytes.len())));
    let (text, records) = blob::read(&bytes).unwrap();
    assert_eq!(text, "key = value\n");
    assert_eq!(records.len(), 2);
    for record in records {
        let wanted = sites();
        let read = blob::read_table(&bytes[record.table as usize..], record.len).unwrap();
        assert_eq!((read.len, read.sites, read.traps, read.pcs), (1000, wanted.sites, wanted.traps, wanted.pcs));
    }
}

/// Reads a description. No code of it is run.
fn kept(bytes: &[u8]) -> Result<Arc<Artifact>, ArtifactError> {
    // SAFETY: nothing is done with what was read.
    unsafe { Artifact::new(bytes.to_vec(), Box::new(())) }
}

#[test]
fn damage_is_no_panic() {
    let bytes = blob::write("memory = sandbox\n", &[sites()]);
    let read = |bytes: &[u8]| {
        let Some((_, records)) = blob::read(bytes) else { return };
        for record in records {
            if let Some(sites) = bytes.get(record.table as usize..).and_then(|rest| blob::read_table(rest, record.len))
            {
                for off in [0, 3, 10, 999, 1000, u32::MAX] {
                    let _ = sites.at(off);
                }
            }
        }
        let _ = kept(bytes);
    };
    for len in 0..bytes.len() {
        read(&bytes[..len]);
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            read(&damaged);
        }
    }
    assert!(matches!(kept(&[0; 64]), Err(ArtifactError::Foreign)));
    assert!(matches!(kept(&bytes[..30]), Err(ArtifactError::Damaged)));
}

#[test]
fn the_first_difference_is_reported() {
    let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let compiled = [fact("memory", "sandbox"), fact("fuel", "yes"), fact("object", "a.o")];
    assert_eq!(facts::from_text(&facts::to_text(&compiled)), compiled);
    assert_eq!(facts::compare(&compiled, &[fact("memory", "sandbox"), fact("fuel", "no")]), Ok(()));
    let error = facts::compare(&compiled, &[fact("memory", "strict"), fact("stack", "576")]).unwrap_err();
    let compiled_as = Some("sandbox".to_owned());
    assert_eq!(error, Difference { key: "memory".to_owned(), compiled: compiled_as, here: "strict".to_owned() });
    let error = facts::compare(&compiled, &[fact("host 0", "printf")]).unwrap_err();
    assert_eq!(error.to_string(), "host 0 did not exist and is printf here");
}

#[test]
fn targets_by_triple_or_architecture() {
    let triple = |text: &str| Target::new(Some(text), Cpu::Baseline).map(|target| target.triple());
    assert_eq!(triple("aarch64").unwrap(), "aarch64-unknown-linux-gnu");
    assert_eq!(triple("riscv64gc-unknown-linux-gnu").unwrap(), "riscv64gc-unknown-linux-gnu");
    assert!(matches!(triple("s390x"), Err(TargetError::BigEndian { .. })));
    assert!(matches!(triple("aarch64_be-unknown-linux-gnu"), Err(TargetError::BigEndian { .. })));
    assert!(matches!(triple("i686"), Err(TargetError::Unsupported { .. })));
    assert!(matches!(triple("x86_64-pc-windows-msvc"), Err(TargetError::Unsupported { .. })));
    assert!(matches!(triple(""), Err(TargetError::Syntax { .. })));
    let other = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
    assert!(matches!(Target::new(Some(other), Cpu::Native), Err(TargetError::NotNative { .. })));
    Target::new(None, Cpu::Native).unwrap();
}
