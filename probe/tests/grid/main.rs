//! Arguments read live where our points are, against what the program says it passes. Each cell is a compiler, a level,
//! a version of DWARF and a language; `TWINBPF_GRID=long` has more functions in each, `TWINBPF_GRID_SEED` others.

mod cells;
#[path = "../../../tests/support/harness.rs"]
mod harness;
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
}

/// Classes of which each compiler has at least 50 right values; of implicit pointers there are at least 30.
const CLASSES: [&str; 6] = ["register", "memory", "constant", "entry", "piece", "bit-field"];

fn values_in_c_by_gcc() {
    run("gcc", &["computed", "implicit pointer"]);
}

fn values_in_c_by_clang() {
    run("clang-19", &[]);
}

fn values_in_cpp_by_gcc() {
    run("g++", &["computed", "implicit pointer"]);
}

fn values_in_cpp_by_clang() {
    run("clang++-19", &[]);
}

fn run(compiler: &'static str, further: &[&str]) {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return harness::skip("the reader of registers is for x86-64 Linux");
    }
    let mut total = Counts::default();
    for cell in Cell::all(compiler) {
        match cell.run() {
            Ok(counts) => {
                println!("{cell}: {counts}");
                total.add(&cell, counts);
            }
            Err(why) => return harness::skip(&format!("{cell}: {why}")),
        }
    }
    println!("{compiler}: {total}");
    assert!(total.wrong.is_empty(), "wrong values:\n{}", total.wrong.join("\n"));
    if std::env::var_os("TWINBPF_GRID_CELL").is_none() {
        for class in CLASSES.iter().chain(further) {
            let least = if *class == "implicit pointer" { 30 } else { 50 };
            assert!(total.right(class) >= least, "{} values of class {class}: {total}", total.right(class));
        }
    }
}
