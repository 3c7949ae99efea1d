//! Against the running kernel; where it does not let us, a test says so and passes.

use std::os::fd::{AsFd, AsRawFd};

use crate::{Error, Map, MapCreate, MapKind, Prog, ProgKind, ProgLoad, TestRun};

/// `r0 = 7; exit`.
const SEVEN: [u8; 16] = [0xb7, 0, 0, 0, 7, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];

/// The answer, or `None` where this kernel or container does not allow BPF at all.
fn allowed<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if matches!(error.cause.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

fn load(insns: &[u8]) -> Result<Prog, Error> {
    Prog::load(&ProgLoad { name: "test", kind: ProgKind::Xdp, insns, license: "GPL", flags: 0 })
}

fn array(name: &str, value_size: u32, flags: u32) -> Result<Map, Error> {
    let spec = MapCreate { name, kind: MapKind::Array, key_size: 4, value_size, max_entries: 2, flags, extra: 0 };
    Map::create(&spec)
}

#[test]
fn a_program_runs() {
    let Some(prog) = allowed(load(&SEVEN)) else { return };
    let run = TestRun { data: &[0; 64], repeat: 100, ..TestRun::default() };
    let result = prog.test_run(&run).unwrap();
    assert_eq!((result.r0, result.data.len()), (7, 64));
}

#[test]
fn a_program_that_the_verifier_refuses_says_why() {
    // r0 = *(u64 *)(r10 - 600); exit
    let insns = [0x79, 0xa0, 0xa8, 0xfd, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    if allowed(load(&SEVEN)).is_none() {
        return;
    }
    let error = load(&insns).unwrap_err();
    assert_eq!((error.command, error.cause.raw_os_error()), ("PROG_LOAD", Some(libc::EACCES)));
    assert!(error.reason().is_some_and(|line| line.contains("stack")), "{error:#}");
    assert!(!error.to_string().contains('\n') && format!("{error:#}").contains("r10 -600"), "{error:#}");
}

#[test]
fn a_long_log_is_read_to_its_end() {
    if allowed(load(&SEVEN)).is_none() {
        return;
    }
    // Thousands of instructions in the log, then one that reads a register nobody wrote.
    let mut insns: Vec<u8> = std::iter::repeat_n([0xb7, 0, 0, 0, 1, 0, 0, 0], 4000).flatten().collect();
    insns.extend([0xbf, 0x30, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0]);
    let error = load(&insns).unwrap_err();
    assert_eq!(error.reason(), Some("R3 !read_ok"), "{error}");
    assert!(error.log.len() > 1 << 15, "{} bytes", error.log.len());
}

#[test]
fn a_map_keeps_values_until_it_is_frozen() {
    let Some(map) = allowed(array("values", 8, 0)) else { return };
    let key = 1_u32.to_ne_bytes();
    map.update(&key, &[5; 8], 0).unwrap();
    assert_eq!(map.lookup(&key).unwrap(), Some(vec![5; 8]));
    assert_eq!(map.lookup(&9_u32.to_ne_bytes()).unwrap(), None);
    map.freeze().unwrap();
    let error = map.update(&key, &[6; 8], 0).unwrap_err();
    assert_eq!((error.cause.raw_os_error(), error.subject.as_str()), (Some(libc::EPERM), "values"));
}

#[test]
fn memory_of_a_map_is_shared() {
    const MMAPABLE: u32 = 1 << 10;
    let Some(map) = allowed(array("shared", 8, MMAPABLE)) else { return };
    let mut shared = map.share(0, 16).unwrap();
    shared.write(8, &[3; 8]);
    assert_eq!(map.lookup(&1_u32.to_ne_bytes()).unwrap(), Some(vec![3; 8]));
    map.update(&0_u32.to_ne_bytes(), &[4; 8], 0).unwrap();
    let mut bytes = [0; 16];
    shared.read(0, &mut bytes);
    assert_eq!(bytes, [4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert!(map.share(shared.addr(), 16).is_err(), "what is mapped there stays");
    assert!(map.as_fd().as_raw_fd() > 2);
}
