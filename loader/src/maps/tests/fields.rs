use twinbpf_btf::{Btf, Endian, TypeId, kind};

use crate::btf_support::build::{BOOL, Build, SIGNED};
use crate::maps::{Layouts, fields};

fn text(btf: &Btf, id: u32) -> Vec<String> {
    let list = fields(btf, TypeId(id));
    list.iter().map(|field| format!("{} {}+{} {:?}", field.name, field.off, field.size, field.kind)).collect()
}

#[test]
fn scalars_come_in_memory_order_with_dotted_names() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, SIGNED);
    let byte = b.int("unsigned char", 1, 0);
    let char = b.int("char", 1, SIGNED);
    let tiny = b.int("signed char", 1, SIGNED);
    let bool = b.int("_Bool", 1, BOOL);
    let wide = b.int("__int128", 16, SIGNED);
    let double = b.add("double", kind::FLOAT, 0, false, 8, &[]);
    let ptr = b.ptr(0);
    let color = b.enumeration("color", 4, false, &[]);
    let (comm, mac, pair, big) = (b.array(char, 16), b.array(byte, 6), b.array(tiny, 2), b.array(int, 129));
    let words = b.array(comm, 2);
    let point = b.structure("point", 8, &[("y", int, 32), ("x", int, 0)]);
    let anon = b.structure("", 8, &[("in", int, 0), ("ner", color, 32)]);
    let either = b.composite(kind::UNION, "", 8, &[("i", int, 0), ("p", ptr, 0)]);
    let points = b.array(point, 2);
    let alias = b.modifier(kind::TYPEDEF, "point_t", point);
    let all = [
        ("comm", comm, 16),
        ("mac", mac, 6),
        ("pair", pair, 2),
        ("", anon, 8),
        ("", either, 8),
        ("at", alias, 8),
        ("points", points, 16),
        ("on", bool, 8),
        ("wide", wide, 16),
        ("d", double, 8),
        ("p", ptr, 8),
        ("words", words, 32),
        ("big", big, 516),
    ];
    let mut off = 0;
    let members = all.map(|(name, id, size)| {
        off += size * 8;
        (name, id, off - size * 8)
    });
    let id = b.structure("all", off / 8, &members);
    let want = [
        "comm 0+16 String",
        "mac 16+6 Bytes",
        "pair[0] 22+1 Signed",
        "pair[1] 23+1 Signed",
        "in 24+4 Signed",
        "ner 28+4 Unsigned",
        "(anon) 32+8 Bytes",
        "at.x 40+4 Signed",
        "at.y 44+4 Signed",
        "points[0].x 48+4 Signed",
        "points[0].y 52+4 Signed",
        "points[1].x 56+4 Signed",
        "points[1].y 60+4 Signed",
        "on 64+1 Unsigned",
        "wide 72+16 Bytes",
        "d 88+8 Float",
        "p 96+8 Unsigned",
        "words[0] 104+16 String",
        "words[1] 120+16 String",
        "big 136+516 Bytes",
    ];
    let btf = b.btf();
    assert_eq!(text(&btf, id), want);
    assert_eq!(text(&btf, int), [" 0+4 Signed"]);
    assert!(fields(&btf, TypeId::VOID).is_empty());
}

#[test]
fn bitfields_are_the_bytes_that_hold_them() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("unsigned int", 4, 0);
    let id = b.bitfields("flags", 12, &[("a", int, 0, 3), ("b", int, 3, 7), ("c", int, 32, 0), ("d", int, 64, 1)]);
    // An old compiler's: an integer type of 5 bits at bit 2.
    let five = b.add("unsigned int", kind::INT, 0, false, 4, &[2 << 16 | 5]);
    let old = b.structure("old", 4, &[("e", five, 8)]);
    let btf = b.btf();
    assert_eq!(text(&btf, id), ["a 0+2 Bytes", "c 4+4 Unsigned", "d 8+1 Bytes"]);
    assert_eq!(text(&btf, old), ["e 1+1 Bytes"]);
}

#[test]
fn oversized_or_malformed_types_are_one_field() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, SIGNED);
    let row = b.array(int, 64);
    let table = b.array(row, 64);
    let outside = b.structure("outside", 4, &[("a", int, 32)]);
    let endless = b.structure("endless", 4, &[("a", b.count + 1, 0)]);
    let void = b.structure("void", 4, &[("a", 0, 0)]);
    let btf = b.btf();
    assert_eq!(text(&btf, table), [" 0+16384 Bytes"]);
    assert_eq!(text(&btf, outside), [" 0+4 Bytes"]);
    assert_eq!(text(&btf, endless), [" 0+4 Bytes"]);
    assert_eq!(text(&btf, void), [" 0+4 Bytes"]);
}

#[test]
fn work_and_output_are_bounded_together() {
    let mut b = Build::new(Endian::Little);
    let int = b.int("int", 4, SIGNED);
    let members: Vec<_> = (0..1000).map(|index| ("m", int, index * 32)).collect();
    let wide = b.structure("wide", 4000, &members);
    // Every level holds the one below twice: 2^40 empty structs.
    let mut nest = b.structure("nest", 0, &[]);
    for _ in 0..40 {
        nest = b.structure("nest", 0, &[("a", nest, 0), ("b", nest, 0)]);
    }
    let nest = b.structure("top", 4, &[("a", nest, 0)]);
    let btf = b.btf();
    let mut layouts = Layouts::new(&btf);
    let total: usize = (0..1000).map(|_| layouts.fields(TypeId(wide)).len()).sum();
    assert!((16_000..20_000).contains(&total), "{total}");
    let mut layouts = Layouts::new(&btf);
    for _ in 0..1000 {
        assert_eq!(layouts.fields(TypeId(nest)).len(), 1);
    }
}
