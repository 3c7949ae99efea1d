//! Against the running kernel; where it does not let us, a test says so and passes, unless `TWINBPF_CI=1`.

mod instance;
mod link;
mod load;
mod map;
mod probe_site;
mod prog;
mod share;
mod stream;
#[cfg(target_arch = "x86_64")]
mod usdt;

use twinbpf_isa::{Endian, asm, encode_all};

use crate::{Error, Prog, ProgLoad, ProgType};

/// Reports that something a test needs is missing.
fn skip(reason: &str) {
    let strict = std::env::var_os("TWINBPF_CI").is_some_and(|value| value == "1");
    assert!(!strict, "TWINBPF_CI=1 allows no skipping: {reason}");
    eprintln!("skipped: {reason}");
}

/// The answer, or `None` where this kernel or container does not allow BPF at all.
fn allowed<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if matches!(error.errno(), Some(libc::EPERM | libc::ENOSYS)) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

/// Machine code of a text.
fn code(text: &str) -> Vec<u8> {
    encode_all(&asm::parse(text).unwrap_or_else(|error| panic!("{error}")), Endian::Little)
}

fn load(kind: ProgType, text: &str) -> Result<Prog, Error> {
    Prog::load(&ProgLoad::new("test", kind, &code(text), "GPL"))
}

const RETURN_0: &str = "r0 = 0\nexit";
