//! Arguments and results of functions of the kernel and of a module, beside what strace sees of the system calls: QEMU boots a
//! kernel that has kprobes.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::tempdir;

use crate::common::{corpus, installed, skip};
use crate::guests::{INIT, Sent, boot, emulated, kernels};
use crate::rig::program;

const INIT_REST: &str = r#"
insmod /tools/tun.ko
twinbpf run /tools/traced.bpf.o -- strace -o /tmp/strace -X raw -e raw=ioctl \
	-e trace=read,pread64,openat,ioctl,fallocate,copy_file_range traced > /tmp/ours 2> /tmp/errors
for file in ours strace errors; do
	echo "== $file" > /dev/ttyS1
	cat /tmp/$file > /dev/ttyS1
done
echo "== end" > /dev/ttyS1
sleep 1
poweroff -f
"#;

/// System calls that succeed and that fail. What the dynamic linker does before is seen, too.
const WORKLOAD: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(void)
{
	char room[4096];
	int zero = openat(AT_FDCWD, "/dev/zero", O_RDONLY), folder = open("/proc", O_RDONLY | O_DIRECTORY);
	int one = open("/tmp/one", O_RDWR | O_CREAT | O_TRUNC, 0600), two = open("/tmp/two", O_RDWR | O_CREAT, 0600);
	int tun = openat(folder, "/dev/net/tun", O_RDWR | O_NONBLOCK), features = 0;

	openat(folder, "none", O_WRONLY | O_APPEND);
	for (int size = 0; size < 100; size += 3)
		if (read(zero, room, size) != size)
			return 1;
	read(folder, room, 77);
	read(tun, room, 1500);
	fallocate(one, 0, 100, 5000);
	fallocate(one, FALLOC_FL_KEEP_SIZE, 0, 0x100000001);
	for (int size = 1; size < 10; size++)
		copy_file_range(one, 0, two, 0, 100 * size, 0);
	ioctl(tun, 0x800454cf, &features);
	ioctl(tun, 0x800454d2, room);
	ioctl(tun, 0x1234, 0x123456789abcUL);
	for (unsigned long number = 0; number < 50; number++)
		ioctl(tun, 0x400454cb, number);
	return 0;
}
"#;

/// Errors that occur in the workload.
fn errno(name: &str) -> i32 {
    match name {
        "ENOENT" => libc::ENOENT,
        "EISDIR" => libc::EISDIR,
        "EBADFD" => libc::EBADFD,
        "EINVAL" => libc::EINVAL,
        "ENOTTY" => libc::ENOTTY,
        "EFAULT" => libc::EFAULT,
        "EFBIG" => libc::EFBIG,
        "ENOSPC" => libc::ENOSPC,
        "EBADF" => libc::EBADF,
        "EPERM" => libc::EPERM,
        _ => panic!("{name} is not in the list"),
    }
}

/// What the programs print of a system call that strace saw.
fn printed(line: &str) -> Vec<String> {
    let (call, result) = line.rsplit_once(" = ").unwrap_or_else(|| panic!("{line}"));
    let (name, rest) = call.split_once('(').unwrap();
    let args: Vec<&str> = rest.trim_end().strip_suffix(')').unwrap().split(", ").collect();
    // What was read may have a comma.
    let from_end = |nth: usize| args[args.len() - nth];
    let mut words = result.split(' ');
    let number = words.next().unwrap();
    let parsed = number.strip_prefix("0x").map_or_else(|| number.parse(), |hex| i64::from_str_radix(hex, 16)).unwrap();
    let result = words.next().map_or(parsed, |name| -i64::from(errno(name)));
    match name {
        "read" => vec![format!("read 0 {}", from_end(1)), format!("read= 0 {result}")],
        "pread64" => vec![format!("read 0 {}", from_end(2)), format!("read= 0 {result}")],
        "fallocate" => vec![format!("len 0 {}", args[3])],
        "copy_file_range" => vec![format!("len 0 {}", args[4])],
        "ioctl" => vec![format!("ioctl 0 {} {}", args[1], args[2]), format!("ioctl= 0 {result}")],
        "openat" => {
            let flags = args[2].strip_prefix("0x").map_or_else(|| args[2].parse(), |hex| i64::from_str_radix(hex, 16));
            // What the system call adds on machines with 64 bits.
            let flags = flags.unwrap() | 0x8000;
            let path = args[1].trim_matches('"');
            vec![format!("openat 0 {} {path} {flags:#x}", args[0]), format!("openat= 0 {result}")]
        }
        _ => panic!("{line}"),
    }
}

/// A module of the kernel that `.ci/kernels` unpacked.
fn module(kernel: &Path) -> Option<PathBuf> {
    let releases = fs::read_dir(kernel.join("lib/modules")).ok()?.flatten();
    releases.map(|release| release.path().join("kernel/drivers/net/tun.ko")).find(|path| path.exists())
}

fn fill(kernel_module: &Path, files: &Path) -> std::io::Result<()> {
    emulated::begin(files, &[INIT, INIT_REST].concat())?;
    emulated::program(files, Path::new(env!("CARGO_BIN_EXE_twinbpf")), "twinbpf")?;
    emulated::program(files, Path::new("/usr/bin/strace"), "strace")?;
    let built = tempdir()?;
    emulated::program(files, &program(built.path(), "traced", WORKLOAD), "traced")?;
    fs::create_dir_all(files.join("tools"))?;
    fs::copy(corpus().join("probes/traced.bpf.o"), files.join("tools/traced.bpf.o"))?;
    fs::copy(kernel_module, files.join("tools/tun.ko")).map(drop)
}

pub(crate) fn arguments_are_those_that_strace_sees() {
    let kernel = match kernels(installed) {
        Ok(kernels) => kernels.into_iter().next().expect("there is one"),
        Err(reason) => return skip(&reason),
    };
    let Some(module) = module(&kernel) else { return skip("the kernel of the guest has no module tun") };
    if let Some(tool) = ["strace", "cc"].into_iter().find(|tool| !installed(tool)) {
        return skip(&format!("{tool} is not installed"));
    }
    let folder = tempdir().unwrap();
    fill(&module, folder.path()).unwrap();
    let Sent { bytes, console } = boot(&kernel, folder.path(), 400).unwrap();
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    assert!(text.contains("== end"), "{console}\n{text}");
    let part = |head: &str| {
        let begin = text.find(&format!("== {head}\n")).unwrap_or_else(|| panic!("no {head}:\n{text}"));
        text[begin..].lines().skip(1).take_while(|line| !line.starts_with("== ")).collect::<Vec<_>>()
    };
    let calls = part("strace").into_iter().filter(|line| !line.starts_with("+++"));
    let wanted: Vec<String> = calls.flat_map(printed).collect();
    let ours: Vec<&str> = part("ours").into_iter().filter_map(|line| line.strip_prefix("traced ")).collect();
    assert_eq!(ours, wanted, "{text}");
    for (kind, least) in [("read= 0 -21", 1), ("openat= 0 -2", 1), ("len 0 ", 11), ("ioctl 0 0x400454cb", 50)] {
        assert!(ours.iter().filter(|line| line.starts_with(kind)).count() >= least, "{kind}: {text}");
    }
    let errors = part("errors").join("\n");
    assert!(!errors.contains("refuses"), "{errors}");
    assert!(errors.contains("left out: argument count at vfs_readlink"), "{errors}");
}
