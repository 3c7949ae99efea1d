//! C lines of generated functions, as DWARF.

use cranelift_codegen::gimli::constants::{
    DW_AT_high_pc, DW_AT_low_pc, DW_AT_name, DW_AT_producer, DW_AT_stmt_list, DW_TAG_subprogram,
};
use cranelift_codegen::gimli::write::{
    Address, AttributeValue, Dwarf, EndianVec, LineProgram, LineString, Sections, Unit,
};
use cranelift_codegen::gimli::{Encoding, Format, LineEncoding, RunTimeEndian};
use std::ops::Range;

use super::Symbol;

/// Debuggers of every age read version 4.
const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

/// A name for DWARF, which ends names at a NUL and takes none that is empty.
fn text(name: &str) -> Vec<u8> {
    let name: Vec<u8> = name.bytes().filter(|byte| *byte != 0).collect();
    if name.is_empty() { b"?".to_vec() } else { name }
}

fn line_program(symbols: &[Symbol]) -> LineProgram {
    let string = |name: &str| LineString::String(text(name));
    let encoding = LineEncoding::default();
    let mut program = LineProgram::new(ENCODING, encoding, string("."), None, string("bpf"), None);
    let folder = program.default_directory();
    for symbol in symbols.iter().filter(|symbol| !symbol.lines.is_empty()) {
        program.begin_sequence(Some(Address::Constant(symbol.range.start)));
        for line in &symbol.lines {
            let file = program.add_file(string(&line.file), folder, None);
            let row = program.row();
            row.address_offset = line.address - symbol.range.start;
            (row.file, row.line) = (file, u64::from(line.line));
            program.generate_row();
        }
        program.end_sequence(symbol.range.end - symbol.range.start);
    }
    program
}

/// Sections of debugging information, by name. None if no line is known.
pub(super) fn sections(code: Range<u64>, symbols: &[Symbol]) -> Vec<(&'static str, Vec<u8>)> {
    if symbols.iter().all(|symbol| symbol.lines.is_empty()) {
        return Vec::new();
    }
    let mut dwarf = Dwarf::new();
    let mut unit = Unit::new(ENCODING, line_program(symbols));
    let root = unit.root();
    let address = |at| AttributeValue::Address(Address::Constant(at));
    let entry = unit.get_mut(root);
    entry.set(DW_AT_producer, AttributeValue::String(b"twinbpf".to_vec()));
    entry.set(DW_AT_name, AttributeValue::String(b"bpf".to_vec()));
    entry.set(DW_AT_stmt_list, AttributeValue::LineProgramRef);
    entry.set(DW_AT_low_pc, address(code.start));
    entry.set(DW_AT_high_pc, AttributeValue::Udata(code.end - code.start));
    for symbol in symbols {
        let id = unit.add(root, DW_TAG_subprogram);
        let entry = unit.get_mut(id);
        entry.set(DW_AT_name, AttributeValue::String(text(&symbol.name)));
        entry.set(DW_AT_low_pc, address(symbol.range.start));
        entry.set(DW_AT_high_pc, AttributeValue::Udata(symbol.range.end - symbol.range.start));
    }
    dwarf.units.add(unit);
    let mut sections = Sections::new(EndianVec::new(RunTimeEndian::default()));
    dwarf.write(&mut sections).expect("addresses are constants");
    let mut found = Vec::new();
    let collected: Result<(), ()> = sections.for_each(|id, section| {
        if !section.slice().is_empty() {
            found.push((id.name(), section.slice().to_vec()));
        }
        Ok(())
    });
    collected.expect("collecting does not fail");
    found
}
