//! Debug information that is damaged: an error or a result, soon, in little memory, and no panic. `TWINBPF_MUTATE` says how
//! many files.
#![expect(unsafe_code, reason = "an allocator that counts")]

#[path = "../../tests/support/harness.rs"]
mod harness;
#[path = "support/program.rs"]
mod program;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection};
use program::{DEFINITIONS, program, run};
use support::{parse, read};
use twinbpf_probe::{Binary, Bytes, Store};

harness::tests! {
    any_section_of_any_form,
    the_table_of_frames_is_not_trusted,
    segments_are_anywhere,
}

/// Files of which a run damages this many, over all forms.
const FILES: u64 = 10_000;
/// What any of them may take. Each has less than 100 KiB.
const MOST_TIME: Duration = Duration::from_secs(5);
const MOST_MEMORY: usize = 4 << 20;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that each thread has taken.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get().wrapping_add(layout.size());
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// A generator of numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// How a program with debug information is made, and which of its files is damaged.
struct Form {
    name: &'static str,
    compiler: &'static str,
    options: &'static [&'static str],
    /// What is done with the program `t`.
    tools: &'static [&'static [&'static str]],
    damaged: &'static str,
}

const FORMS: [Form; 9] = [
    Form { name: "DWARF 5", compiler: "gcc", options: &["-g", "-gdwarf-5"], tools: &[], damaged: "t" },
    Form { name: "DWARF 4", compiler: "gcc", options: &["-g", "-gdwarf-4"], tools: &[], damaged: "t" },
    Form { name: "clang", compiler: "clang-19", options: &["-g"], tools: &[], damaged: "t" },
    Form {
        name: "type units",
        compiler: "gcc",
        options: &["-g", "-gdwarf-4", "-fdebug-types-section"],
        tools: &[],
        damaged: "t",
    },
    Form { name: "compressed", compiler: "gcc", options: &["-g", "-gz"], tools: &[], damaged: "t" },
    Form {
        name: "separate",
        compiler: "gcc",
        options: &["-g", "-gdwarf-4"],
        tools: &[
            &["objcopy", "--only-keep-debug", "t", "t.debug"],
            &["strip", "-g", "t"],
            &["objcopy", "--add-gnu-debuglink=t.debug", "t"],
        ],
        damaged: "t.debug",
    },
    Form { name: "split", compiler: "gcc", options: &["-g", "-gsplit-dwarf"], tools: &[], damaged: "b.dwo" },
    Form {
        name: "package",
        compiler: "gcc",
        options: &["-g", "-gdwarf-4", "-gsplit-dwarf"],
        tools: &[&["dwp", "-e", "t", "-o", "t.dwp"], &["rm", "a.dwo", "b.dwo"]],
        damaged: "t.dwp",
    },
    Form {
        name: "shared (dwz)",
        compiler: "gcc",
        options: &["-g", "-gdwarf-4"],
        tools: &[&["cp", "t", "u"], &["dwz", "-m", "common", "t", "u"]],
        damaged: "common",
    },
];

fn any_section_of_any_form() {
    let count = std::env::var("TWINBPF_MUTATE").ok().and_then(|count| count.parse().ok()).unwrap_or(FILES);
    let mut report = String::new();
    for (form, seed) in FORMS.iter().zip(1..) {
        let Some(folder) = program(form.compiler, form.options) else { return };
        if form.tools.iter().any(|tool| run(folder.path(), tool[0], &tool[1..]).is_none()) {
            return;
        }
        let whole = damage(folder.path(), form, 0, &mut Random(1)).points;
        assert!(whole >= 4, "{}: {whole} points without damage", form.name);
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut most = Outcome::default();
        for _ in 0..count / FORMS.len() as u64 {
            let changes = 1 + random.below(12);
            let outcome = damage(folder.path(), form, changes, &mut random);
            most = most.max(outcome);
        }
        let Outcome { time, memory, .. } = most;
        writeln!(report, "{}: at most {time:?}, {} KiB", form.name, memory >> 10).unwrap();
        assert!(time < MOST_TIME && memory < MOST_MEMORY, "{report}");
    }
    print!("{report}");
}

/// What a file took, and how many points it led to.
#[derive(Clone, Copy, Default)]
struct Outcome {
    time: Duration,
    memory: usize,
    points: usize,
}

impl Outcome {
    fn max(self, other: Outcome) -> Outcome {
        Outcome {
            time: self.time.max(other.time),
            memory: self.memory.max(other.memory),
            points: self.points.max(other.points),
        }
    }
}

/// Damages a file and does everything with it that is public. A panic writes the file to `TWINBPF_MUTATE_KEEP`.
fn damage(folder: &Path, form: &Form, changes: usize, random: &mut Random) -> Outcome {
    let mut bytes = std::fs::read(folder.join(form.damaged)).unwrap();
    let mut sections: Vec<(usize, usize)> = {
        let file = object::File::parse(&*bytes).unwrap();
        let ranges = file.sections().filter_map(|section| section.file_range());
        ranges.filter(|(_, size)| *size > 0).map(|(begin, size)| (begin as usize, size as usize)).collect()
    };
    // The headers: of the file and its segments, and of its sections.
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    sections.extend([(16, 48 + 56 * usize::from(bytes[56])), (table, bytes.len() - table)]);
    for _ in 0..changes {
        let (begin, size) = sections[random.below(sections.len())];
        change(&mut bytes, begin, size, random);
    }
    let begun = Instant::now();
    let before = LIVE.get();
    PEAK.set(before);
    let program = if form.damaged == "t" { bytes.clone() } else { std::fs::read(folder.join("t")).unwrap() };
    let points = std::panic::catch_unwind(|| survive(folder, &program, form.damaged, &bytes));
    let points = points.unwrap_or_else(|panic| {
        if let Some(kept) = std::env::var_os("TWINBPF_MUTATE_KEEP") {
            std::fs::write(kept, &bytes).unwrap();
        }
        std::panic::resume_unwind(panic)
    });
    Outcome { time: begun.elapsed(), memory: PEAK.get().saturating_sub(before), points }
}

/// Changes a few bytes of a section, to what readers get wrong.
fn change(bytes: &mut [u8], begin: usize, size: usize, random: &mut Random) {
    let at = begin + random.below(size);
    let part = &mut bytes[at..begin + size];
    match random.below(7) {
        0 => part[0] = 0xff,
        1 => part[0] = 0,
        2 => part[0] = part[0].wrapping_add(1),
        3 => part[0] ^= 1 << random.below(8),
        // Sizes and offsets of four and eight bytes, numbers of any length.
        4 => part.iter_mut().take(4).for_each(|byte| *byte = 0xff),
        5 => part.iter_mut().take(9).for_each(|byte| *byte |= 0x80),
        _ => {
            let (from, length) = (begin + random.below(size), 1 + random.below(16));
            let end = (from + length).min(begin + size);
            let fits = (end - from).min(begin + size - at);
            bytes.copy_within(from..from + fits, at);
        }
    }
}

/// Everything that is public, on these bytes; how many points there were.
fn survive(folder: &Path, program: &[u8], damaged: &str, bytes: &[u8]) -> usize {
    let store = Store::new();
    let files = |path: &Path| match path.file_name() {
        Some(name) if name == damaged => Some(Box::new(bytes.to_vec()) as Bytes),
        _ => read(path).filter(|_| path.starts_with(folder)),
    };
    let Ok(binary) = Binary::open(&store, &folder.join("t"), program, &files, 1) else { return 0 };
    let further = ["*:1 n", "second+4 n", "*%return $retval", "a.c:4 r->in.x", "* n r->a i->y", "mian x", "a.c:999"];
    let mut points = 0;
    for text in DEFINITIONS.iter().chain(&further) {
        let definition = parse(text).unwrap();
        match binary.probe(&definition) {
            Ok(found) => points += found.len(),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        for (_, variables) in binary.available(&definition).unwrap_or_default() {
            points += variables.iter().filter(|variable| variable.value.is_ok()).count();
        }
    }
    let _ = (binary.functions("*"), binary.missing());
    points
}

/// Fields of `.eh_frame_hdr` that the reader of a damaged one must check: a pointer after all frames, and a number of rows
/// that there is no room for. The frames are found all the same.
fn the_table_of_frames_is_not_trusted() {
    let Some(folder) = program("gcc", &["-g", "-O0"]) else { return };
    let original = std::fs::read(folder.path().join("t")).unwrap();
    let begin = {
        let file = object::File::parse(&*original).unwrap();
        file.section_by_name(".eh_frame_hdr").unwrap().file_range().unwrap().0 as usize
    };
    let places = |bytes: &[u8]| {
        let store = Store::new();
        let binary = Binary::open(&store, Path::new("t"), bytes, &|_| None, 1).unwrap();
        let points = binary.probe(&parse("second n r").unwrap()).unwrap();
        points[0].args.iter().map(|(_, value)| value.as_ref().unwrap().text(binary.machine(), 0)).collect::<Vec<_>>()
    };
    let whole = places(&original);
    // Version, three encodings, the pointer to the frames, the number of rows.
    for (at, with) in [(4, &[0xff, 0xff, 0xff, 0x7f][..]), (8, &[0xff, 0xff, 0xff, 0xff]), (2, &[0x04, 0x0c])] {
        let mut bytes = original.clone();
        bytes[begin + at..begin + at + with.len()].copy_from_slice(with);
        if at == 2 {
            bytes[begin + 8..begin + 16].fill(0xff);
        }
        assert_eq!(places(&bytes), whole, "{with:x?} at {at}");
    }
}

/// Segments at the end of all addresses, and of more bytes: no address is in one that begins after it.
fn segments_are_anywhere() {
    let Some(folder) = program("gcc", &["-g"]) else { return };
    let original = std::fs::read(folder.path().join("t")).unwrap();
    let first = u64::from_le_bytes(original[32..40].try_into().unwrap()) as usize;
    for header in 0..usize::from(original[56]) {
        let mut bytes = original.clone();
        for field in [16, 32] {
            bytes[first + 56 * header + field..][..8].fill(0xff);
        }
        survive(folder.path(), &bytes, "t", &bytes);
    }
}
