//! Workloads in C of other projects, as packages of the registry carry it: `benches/third_party` has the wrappers, and a manifest by
//! which cargo fetches the packages. They are compiled here, once a process, and left out where they are not available.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

use twinbpf::Object;

use super::{FRAME, inputs};
use crate::peers::native::Source;

/// One of them.
pub(super) struct ThirdParty {
    /// Wrapper in `benches/third_party`, without extension.
    pub(super) name: &'static str,
    /// Package that has the sources.
    package: &'static str,
    /// Work of one run, in its own unit, or [`inputs::WHOLE`].
    len: u64,
    shape: fn(&mut [u8]),
    /// What native code returns.
    pub(super) expected: u64,
}

const fn third_party(
    name: &'static str,
    package: &'static str,
    len: u64,
    shape: fn(&mut [u8]),
    expected: u64,
) -> ThirdParty {
    ThirdParty { name, package, len, shape, expected }
}

/// All.
pub(super) const THIRD_PARTY: &[ThirdParty] = &[
    third_party("blake3", "blake3", 16384, inputs::noise, 0x637d_3ddb_e215_00de),
    third_party("bzip2-sys", "bzip2-sys", 4096, inputs::text, 0x3c20_4d5b_2d41_1e2b),
    third_party("libdeflate-deflate", "libdeflate-sys", 8192, inputs::text, 0xd2e9_b999_6058_e32d),
    third_party("libdeflate-inflate", "libdeflate-sys", inputs::WHOLE, inputs::deflated, 0xb5d0_cce2_3c28_9704),
    third_party("lz4-sys", "lz4-sys", 16384, inputs::text, 0xd8b0_83a5_b8d4_37b2),
    third_party("mozjpeg-dct", "mozjpeg-sys", 64, inputs::noise, 0x2100_3396_0179_904e),
    third_party("secp256k1-field", "secp256k1-sys", 4, inputs::noise, 0x12ca_6d27_cf7b_93ee),
    third_party("zlib-crc32", "libz-sys", 16384, inputs::noise, 0x4cea_382f),
    third_party("zlib-deflate", "libz-sys", 8192, inputs::text, 0x852f_6238_a764_34df),
];

/// Objects of this process, by name.
static OBJECTS: Mutex<BTreeMap<&str, Result<Vec<u8>, String>>> = Mutex::new(BTreeMap::new());
/// Folders of packages, by name.
static FOLDERS: LazyLock<Result<BTreeMap<String, PathBuf>, String>> = LazyLock::new(folders);

impl ThirdParty {
    /// The block of each run.
    pub(super) fn block(&self) -> Vec<u8> {
        inputs::block(self.len, self.shape)
    }

    /// The object, compiled for BPF.
    pub(super) fn object(&'static self) -> Result<Object, String> {
        let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = objects.entry(self.name).or_insert_with(|| self.compile()).as_ref().map_err(Clone::clone)?;
        Object::open(self.name, bytes).map_err(|error| error.to_string())
    }

    /// The wrapper.
    pub(super) fn source(&self) -> Result<Source, String> {
        let path = wrappers().join(format!("{}.c", self.name));
        Ok(Source { path, flags: self.flags()?, block: self.block() })
    }

    /// Where headers are found: ours in place of the C library's, and the package's folder.
    fn flags(&self) -> Result<Vec<String>, String> {
        let folders = FOLDERS.as_ref().map_err(Clone::clone)?;
        let folder = folders.get(self.package).ok_or_else(|| format!("cargo knows no package {}", self.package))?;
        let include = |path: &Path| ["-I".to_owned(), path.to_string_lossy().into_owned()];
        let plain = ["-w", "-nostdlibinc"].map(str::to_owned);
        Ok(plain.into_iter().chain(include(&wrappers().join("include"))).chain(include(folder)).collect())
    }

    fn compile(&self) -> Result<Vec<u8>, String> {
        let frame = format!("-bpf-stack-size={FRAME}");
        let flags =
            ["-O2", "-g", "-target", "bpf", "-mcpu=v4", "-ffreestanding", "-fno-builtin", "-mllvm", &frame, "-c"];
        std::fs::read(self.source()?.compile(&flags)?).map_err(|error| error.to_string())
    }
}

fn wrappers() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/third_party"))
}

/// Has cargo fetch the packages, and asks it where they are.
fn folders() -> Result<BTreeMap<String, PathBuf>, String> {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["metadata", "--locked", "--format-version=1", "--manifest-path"]).arg(wrappers().join("Cargo.toml"));
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo cannot fetch it: {}", said.lines().next().unwrap_or_default()));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let folder = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some((package["name"].as_str()?.to_owned(), manifest.parent()?.to_owned()))
    };
    Ok(packages.filter_map(folder).collect())
}
