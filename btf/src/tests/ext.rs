use super::support::build::{Build, SIGNED, both};
use crate::{BtfError, BtfExt, CoreKind, CoreRelo, Endian, FuncInfo, LineResolver, TypeId};

/// A section of three tables; each is (record size, records by section name offset).
fn ext(b: &Build, header: u32, tables: [&[u32]; 3]) -> Vec<u8> {
    let lens = tables.map(|table| table.len() as u32 * 4);
    let mut bytes = b.half(0xeb9f).to_vec();
    bytes.extend([1, 0]);
    let words = [header, 0, lens[0], lens[0], lens[1], lens[0] + lens[1], lens[2], 0, 0];
    bytes.extend(&b.words(&words)[..header as usize - 4]);
    bytes.extend(b.words(&tables.concat()));
    bytes
}

#[test]
fn records_come_by_section_in_both_byte_orders() {
    both(|endian| {
        let mut b = Build::new(endian);
        b.int("int", 4, SIGNED);
        let [xdp, text, file, line, access] = ["xdp", ".text", "a.c", "\treturn 0;", "0:1"].map(|name| b.str(name));
        let btf = b.btf();
        let funcs = [8, xdp, 2, 0, 5, 16, 6, text, 1, 0, 7];
        // Records longer than we know are cut.
        let lines = [20, xdp, 1, 8, file, line, 12 << 10 | 3, 0xdead];
        let relos = [16, xdp, 1, 8, 1, access, 2];
        let parsed = BtfExt::parse(&btf, &ext(&b, 32, [&funcs, &lines, &relos])).unwrap();
        let names: Vec<_> = parsed.sections.iter().map(|section| &*section.name).collect();
        assert_eq!(names, ["xdp", ".text"]);
        let section = parsed.section("xdp").unwrap();
        assert_eq!(section.funcs[1], FuncInfo { insn_off: 16, type_id: TypeId(6) });
        let line = LineResolver::new(&btf).line(&section.lines[0], 1);
        assert_eq!((line.pc, &*line.file, line.line, line.column, &*line.text), (1, "a.c", 12, 3, "return 0;"));
        let relo = CoreRelo { insn_off: 8, type_id: TypeId(1), access_off: access, kind: 2 };
        assert_eq!(section.relos, [relo]);
        assert_eq!((btf.str(relo.access_off), CoreKind::new(2)), ("0:1", Some(CoreKind::FieldExists)));
        assert_eq!(CoreKind::new(13), None);
        assert!(parsed.section("none").is_none());
        // The header of old compilers has no CO-RE table; a newer one may have more.
        assert!(BtfExt::parse(&btf, &ext(&b, 24, [&funcs, &lines, &[]])).unwrap().sections[0].relos.is_empty());
        assert!(BtfExt::parse(&btf, &ext(&b, 36, [&funcs, &lines, &relos])).is_ok());
        assert!(BtfExt::parse(&btf, &ext(&b, 32, [&[], &[], &[]])).unwrap().sections.is_empty());
    });
}

#[test]
fn corrupt_tables_are_errors() {
    let mut b = Build::new(Endian::Little);
    let xdp = b.str("xdp");
    let btf = b.btf();
    let error = |funcs: &[u32]| BtfExt::parse(&btf, &ext(&b, 32, [funcs, &[], &[]])).unwrap_err().to_string();
    assert_eq!(error(&[4]), ".BTF.ext is corrupt: record size is 4");
    assert_eq!(error(&[10]), ".BTF.ext is corrupt: record size is 10");
    let many = ".BTF.ext is corrupt: number of records, more than the table holds, is 2";
    assert_eq!(error(&[8, xdp, 2, 0, 0]), many);
    assert!(error(&[8, xdp, u32::MAX, 0, 0]).ends_with("is 4294967295"));
    assert_eq!(error(&[8, xdp]), ".BTF.ext is corrupt: a last lone word is 1");
    let mut bytes = ext(&b, 32, [&[8, xdp, 1, 0, 0], &[], &[]]);
    bytes.truncate(40);
    let text = BtfExt::parse(&btf, &bytes).unwrap_err().to_string();
    assert_eq!(text, "BTF is truncated: function records needs 20 bytes, there are 8");
    bytes[4] = 200;
    assert!(matches!(BtfExt::parse(&btf, &bytes), Err(BtfError::Truncated { need: 200, have: 40, .. })));
}

#[test]
fn suffixes_of_one_long_string_do_not_multiply_it() {
    let mut b = Build::new(Endian::Little);
    let digit = |index: u32| char::from(b'0' + (index.wrapping_mul(0x9e37_79b1) >> 24) as u8 % 10);
    let digits: String = (0..20_000).map(digit).collect();
    let long = b.str(&digits);
    let btf = b.btf();
    let lines: Vec<u32> = (0..10_000).flat_map(|index| [0, long + index, long + index, 0]).collect();
    let table = [&[16, 0, 10_000], &lines[..]].concat();
    let parsed = BtfExt::parse(&btf, &ext(&b, 32, [&[], &table, &[]])).unwrap();
    let mut resolver = LineResolver::new(&btf);
    let total: usize = parsed.sections[0].lines.iter().map(|info| resolver.line(info, 0).text.len()).sum();
    assert!((20_000..=40_004).contains(&total), "{total}");
    let sections: Vec<u32> = (0..10_000).flat_map(|index| [long + index, 0]).collect();
    let table = [&[8], &sections[..]].concat();
    assert!(matches!(BtfExt::parse(&btf, &ext(&b, 32, [&table, &[], &[]])), Err(BtfError::Ext { .. })));
}
