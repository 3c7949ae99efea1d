//! Arguments read live where our points are, against what the program says it passes. Each cell is a compiler, a level,
//! a version of DWARF and a language; `TWINBPF_GRID=long` has more functions in each, `TWINBPF_GRID_SEED` others.

mod cells;
mod gdb;
#[path = "../../../tests/support/harness.rs"]
mod harness;
mod rust;
mod source;
#[path = "../support/mod.rs"]
mod support;
#[expect(dead_code, reason = "the number of the process is for those who leave core files")]
mod tracer;

use cells::{Cell, Counts};

harness::tests! {
    values_in_c_by_gcc,
    values_in_c_by_clang,
    values_in_cpp_by_gcc,
    values_in_cpp_by_clang,
    values_in_rust,
    forms_of_debug_information_by_gcc,
    forms_of_debug_information_by_clang,
}

/// Classes of which each compiler has at least 50 right values; Constants of clang are
/// refused: nothing tells one that callers pass from one that the function assigns.
const CLASSES: [&str; 5] = ["register", "memory", "entry", "piece", "bit-field"];

fn values_in_c_by_gcc() {
    run("gcc", &["computed", "constant", "implicit pointer"]);
}

fn values_in_c_by_clang() {
    run("clang-19", &[]);
}

fn values_in_cpp_by_gcc() {
    run("g++", &["computed", "constant", "implicit pointer"]);
}

fn values_in_cpp_by_clang() {
    run("clang++-19", &[]);
}

fn values_in_rust() {
    total(Cell::rust());
}

fn forms_of_debug_information_by_gcc() {
    total(Cell::forms("gcc"));
}

fn forms_of_debug_information_by_clang() {
    total(Cell::forms("clang-19"));
}

fn run(compiler: &'static str, further: &[&str]) {
    let Some(total) = total(Cell::levels(compiler)) else { return };
    if std::env::var_os("TWINBPF_GRID_CELL").is_none() {
        for class in CLASSES.iter().chain(further) {
            assert!(total.right(class) >= 50, "{} values of class {class}: {total}", total.right(class));
        }
    }
}

/// What came of all cells; `None` where they cannot run. No value is wrong, and each cell has at least 50.
fn total(cells: Vec<Cell>) -> Option<Counts> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        harness::skip("the reader of registers is for x86-64 Linux");
        return None;
    }
    let mut total = Counts::default();
    for cell in cells {
        match cell.run() {
            Ok(counts) => {
                println!("{cell}: {counts}");
                assert!(counts.all_right() >= 50, "{cell}: {counts}");
                assert!(counts.gdb.refused * 50 <= counts.gdb.right, "refused where gdb is right: {cell}: {counts}");
                total.add(&cell, counts);
            }
            Err(why) => {
                harness::skip(&format!("{cell}: {why}"));
                return None;
            }
        }
    }
    assert!(total.wrong.is_empty(), "wrong values:\n{}", total.wrong.join("\n"));
    println!("{total}");
    Some(total)
}
