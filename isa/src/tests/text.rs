use super::wire::grid;
use crate::{Insn, asm, disasm, disasm_with, text_at};

fn one(text: &str) -> Insn {
    match asm::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[..] {
        [insn] => insn,
        ref other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn text_assembles_back() {
    grid(|raw| {
        if let Ok(insn) = Insn::decode(raw) {
            let text = insn.to_string();
            assert_eq!(one(&text), insn, "{text}");
        }
    });
}

/// The whole grid as one stream, which pairs halves of `lddw` in every combination.
#[test]
fn listings_assemble_back() {
    let mut insns = Vec::new();
    grid(|raw| insns.extend(Insn::decode(raw)));
    let wide: Vec<Insn> = insns.iter().copied().filter(|insn| insn.to_string().contains("32 ")).collect();
    let pairs = wide.iter().step_by(7).zip(wide.iter().rev().step_by(3)).flat_map(|(a, b)| [*a, *b]);
    let insns: Vec<Insn> = insns.iter().step_by(11).copied().chain(pairs).collect();
    let text = disasm_with(&insns, |pc| Some(format!("line of {pc}\n# again")), |pc| Some(format!("/* {pc} */")));
    assert_eq!(asm::parse(&text).unwrap(), insns);
    let text = disasm(&insns);
    assert_eq!(disasm(&asm::parse(&text).unwrap()), text);
}

/// Instructions and their text; the encodings of the first column were made by llvm-mc 19 from the second.
#[test]
fn notation() {
    let cases: &[(u64, &str)] = &[
        (0x0f21_0000_0000_0000, "r1 += r2"),
        (0xc403_0000_0400_0000, "w3 s>>= 4"),
        (0x6603_0500_0400_0000, "if w3 s> 4 goto +5"),
        (0x4d43_0500_0000_0000, "if r3 & r4 goto +5"),
        (0x9110_0300_0000_0000, "r0 = *(s8 *)(r1 + 3)"),
        (0x7b1a_f8ff_0000_0000, "*(u64 *)(r10 - 8) = r1"),
        (0x7a01_0400_0500_0000, "*(u64 *)(r1 + 4) = 5"),
        (0xdb21_0000_0000_0000, "lock *(u64 *)(r1 + 0) += r2"),
        (0xc321_0000_0000_0000, "lock *(u32 *)(r1 + 0) += w2"),
        (0xdb21_0000_0100_0000, "r2 = atomic_fetch_add((u64 *)(r1 + 0), r2)"),
        (0xc321_0400_f100_0000, "w0 = cmpxchg32_32(r1 + 4, w0, w2)"),
        (0xdb21_0400_f100_0000, "r0 = cmpxchg_64(r1 + 4, r0, r2)"),
        (0xdb21_fcff_e100_0000, "r2 = xchg_64(r1 - 4, r2)"),
        (0xc321_fcff_e100_0000, "w2 = xchg32_32(r1 - 4, w2)"),
        (0xdc01_0000_1000_0000, "r1 = be16 r1"),
        (0xd701_0000_2000_0000, "r1 = bswap32 r1"),
        (0xbc21_0800_0000_0000, "w1 = (s8)w2"),
        (0xbf21_2000_0000_0000, "r1 = (s32)r2"),
        (0x3f43_0100_0000_0000, "r3 s/= r4"),
        (0x8701_0000_0000_0000, "r1 = -r1"),
        (0x8500_0000_0500_0000, "call 5"),
        (0x8d03_0000_0000_0000, "callx r3"),
        (0x0500_0500_0000_0000, "goto +5"),
        (0x0600_0000_0500_0000, "gotol +5"),
        (0xe500_0500_0000_0000, "may_goto +5"),
        (0xbf21_0100_0100_0000, "r1 = addr_space_cast(r2, 0, 1)"),
        (0x2800_0000_0400_0000, "r0 = *(u16 *)skb[4]"),
        (0x9500_0000_0000_0000, "exit"),
        // Not in llvm 19: the kernel's text of these.
        (0x8510_0000_0700_0000, "call pc+7"),
        (0x8520_0000_ffff_ffff, "call extern(-1)"),
        (0xc310_0000_0001_0000, "r0 = load_acquire((u32 *)(r1 + 0))"),
        (0x7b01_0000_0000_0000, "*(u64 *)(r1 + 0) = r0"),
        (0xd301_0000_1001_0000, "store_release((u8 *)(r1 + 0), r0)"),
        (0x4840_0000_fcff_ffff, "r0 = *(u16 *)skb[r4 - 4]"),
        (0x0d01_0000_0000_0000, "gotox r1"),
    ];
    for &(bytes, text) in cases {
        let insn = crate::decode_all(&bytes.to_be_bytes(), crate::Endian::Little).unwrap()[0];
        assert_eq!(insn.to_string(), text);
        assert_eq!(one(text), insn);
    }
}

#[test]
fn lddw_is_one_line() {
    let text = "    0: r1 = 0x12345678 ll\n    2: r2 = map_fd(5) ll\n    4: r3 = map_value(5, 16) ll\n    6: exit\n";
    let insns = asm::parse(text).unwrap();
    assert_eq!(insns.len(), 7);
    assert_eq!(disasm(&insns), text);
    assert_eq!(text_at(&insns, 0), "r1 = 0x12345678 ll");
    assert_eq!(text_at(&insns, 1), "hi32 0x0");
    assert_eq!(text_at(&insns, 7), "");
    assert_eq!(asm::parse("r1 = -1 ll").unwrap(), asm::parse("r1 = 0xffffffffffffffff ll").unwrap());
}

#[test]
fn labels_and_comments() {
    let text = "
        start: r1 = 5           ; five
        loop:
          r1 += -1              // and down
          if r1 != 0 goto loop  # again
          if r1 == 0 goto end
          gotol start
          call f
          r2 = func(f) ll
          goto pc-2 <start+0x10>
        end: exit
        f:
          exit";
    let insns = asm::parse(text).unwrap();
    let lines: Vec<String> = (0..insns.len()).map(|pc| text_at(&insns, pc)).collect();
    let expected = [
        "r1 = 5",
        "r1 += -1",
        "if r1 != 0 goto -2",
        "if r1 == 0 goto +5",
        "gotol -5",
        "call pc+4",
        "r2 = func(3) ll",
        "hi32 0x0",
        "goto -2",
        "exit",
        "exit",
    ];
    assert_eq!(lines, expected);
    let assembled = asm::assemble("a: b:\n exit\nc:").unwrap();
    assert_eq!(assembled.labels.into_iter().collect::<Vec<_>>(), [("a".into(), 0), ("b".into(), 0), ("c".into(), 1)]);
}

#[test]
fn spellings_of_other_tools() {
    assert_eq!(one("r0 = *(u32 *)(r1 +4)"), one("r0 = *(u32 *)(r1 + 0x4)"));
    assert_eq!(one("w0 = *(u32 *)(r1+4)"), one("r0 = *(u32 *)(r1 + 4)"));
    assert_eq!(one("*(u8 *)(r1 + 0) = w2"), one("*(u8 *)(r1 + 0) = r2"));
    assert_eq!(one("lock *(u32 *)(r1 +0) += r2"), one("lock *(u32 *)(r1 + 0) += w2"));
    assert_eq!(one("w1 = 0xffffffff"), one("w1 = -1"));
    assert_eq!(one("7: if r1 == 0x7 goto pc+3"), one("if r1 == 7 goto +3"));
    assert_eq!(one("r0 = *(u8 *)skb[r4]"), one("r0 = *(u8 *)skb[r4 + 0]"));
    assert_eq!(one("r1 = *(u8 *)(r2)"), one("r1 = *(u8 *)(r2 + 0)"));
}

#[test]
fn errors_say_where_and_what() {
    let cases = [
        ("exit\n  r1 =+ r2", "line 2, column 9: expected a number, found `r2`"),
        (
            "r1 ++ r2",
            "line 1, column 4: expected an assignment, found `+` \
             (+= -= *= /= s/= |= &= <<= >>= %= s%= ^= = s>>=)",
        ),
        (
            "r11 = 0",
            "line 1, column 1: expected an instruction, found `r11` (for example `r1 += r2`, `if w3 s> 4 goto +5`, `exit`)",
        ),
        ("r1 += w2", "line 1, column 7: w2 where r2 is needed (both sides have one width)"),
        (
            "r1 = 0x80000000",
            "line 1, column 6: 2147483648 does not fit a signed 32-bit immediate \
             (a 64-bit constant is loaded by `r1 = NUMBER ll`)",
        ),
        ("goto nowhere", "line 1, column 6: there is no label nowhere (define it as `name:` on any line)"),
        ("a:\na: exit", "line 2, column 1: label a is defined twice"),
        ("goto +32768", "line 1, column 6: 32768 does not fit a 16-bit jump offset"),
        ("r1 = be16 r2", "line 1, column 11: source and destination of this operation are one register"),
        ("r0 = *(s64 *)(r1 + 0)", "line 1, column 7: 8 bytes are loaded as u64 into an r register"),
        ("*(s8 *)(r1 + 0) = 1", "line 1, column 2: only a load has a signed type"),
        ("exit exit", "line 1, column 6: expected the end of the line, found `exit`"),
        ("r1 = 5 µ", "line 1, column 8: unexpected character 'µ'"),
        ("r1 = 99999999999999999999", "line 1, column 6: 99999999999999999999 is not a number of at most 64 bits"),
        (
            "lock *(u8 *)(r1 + 0) += r2",
            "line 1, column 7: an atomic operation has 4 or 8 bytes (load_acquire and store_release exist in all sizes)",
        ),
        ("if r1 = r2 goto +1", "line 1, column 7: expected a comparison, found `=` (== > >= & != s> s>= < <= s< s<=)"),
    ];
    for (text, expected) in cases {
        assert_eq!(asm::parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

/// A jump that reaches its label only with 32 bits.
#[test]
fn labels_out_of_reach() {
    let far = |jump: &str| format!("{jump} end\n{}end: exit", "r0 = 0\n".repeat(32768));
    let error = asm::parse(&far("goto")).unwrap_err();
    assert_eq!(error.what, "label end is 32768 instructions away, too far");
    assert_eq!(asm::parse(&far("gotol")).unwrap()[0], Insn::Gotol { off: 32768 });
}

/// Any text ends in instructions or an error: pieces of valid lines put together at random.
#[test]
fn no_text_panics() {
    let mut lines = Vec::new();
    let mut count = 0u32;
    grid(|raw| {
        count += 1;
        if count.is_multiple_of(997) {
            lines.extend(Insn::decode(raw).map(|insn| insn.to_string()));
        }
    });
    lines.extend(
        ["é: ü", "0x", "pc:", "r", "w", "*(", "call pc", "if", "\u{2028}", "r1 = func(", "<"].map(String::from),
    );
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound.max(1) as u64) as usize
    };
    let mut accepted = 0;
    for _ in 0..40_000 {
        let (a, b) = (&lines[next(lines.len())], &lines[next(lines.len())]);
        let head: String = a.chars().take(next(a.len() + 1)).collect();
        let tail: String = b.chars().skip(next(b.len() + 1)).collect();
        if let Ok(insns) = asm::parse(&format!("{head}{tail}")) {
            accepted += 1;
            assert_eq!(asm::parse(&disasm(&insns)), Ok(insns));
        }
    }
    assert!(accepted > 100, "{accepted}");
}
