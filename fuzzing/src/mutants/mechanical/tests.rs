//! Which changes of small functions the second opinion explains.

use twinbpf_verify::{Access, Argument, Callee, Content, Field, Layout, Load, Region, Returns};

use super::judge::Judge;
use super::listing::Listing;
use super::{Subject, classes, sites};

const BASE: u64 = 0x10_0000;
const MARGIN: u64 = 1 << 20;
/// Bytes of the table.
const TABLE: u64 = 0x100;

/// `movzx ecx, dl`, `movzx ecx, dx`, `mov ecx, edx` and `mov rcx, rdx`.
const BYTE: &[u8] = &[0x0f, 0xb6, 0xca];
const HALF: &[u8] = &[0x0f, 0xb7, 0xca];
const WORD: &[u8] = &[0x89, 0xd1];
const ALL: &[u8] = &[0x48, 0x89, 0xd1];

/// Fields of the context that have addresses.
const ARENA: u8 = 0x08;
const REGION: u8 = 0x10;
const COUNT: u8 = 0x18;

/// A module of so many functions.
fn layout(functions: u64) -> Layout {
    let field = |offset: u8, load| Field { offset: offset.into(), size: 8, count: 1, access: Access::Constant(load) };
    Layout {
        arena: 1 << 32,
        margin: MARGIN,
        guard: 4096,
        stride: 512,
        context: 0x80,
        fields: vec![field(ARENA, Load::Arena), field(REGION, Load::Region(0)), field(COUNT, Load::Number(functions))],
        regions: vec![Region { content: Content::Bytes(TABLE) }],
        words: Vec::new(),
        callees: Vec::new(),
    }
}

/// A function reloads a zero into rcx, does `between` and loads a byte from the address in `field` plus rcx. The change: it
/// reloads the next slot instead, which has what `makes` puts into rcx.
fn explained(field: u8, makes: &[u8], between: &[u8]) -> bool {
    explained_in(&layout(5), field, makes, between)
}

fn explained_in(layout: &Layout, field: u8, makes: &[u8], between: &[u8]) -> bool {
    let head = [
        &[0x48, 0x83, 0xec, 0x20][..],   // sub rsp, 32
        &[0x4c, 0x8b, 0x47, field],      // mov r8, [rdi + field]
        makes,                           //
        &[0x48, 0x89, 0x4c, 0x24, 0x10], // mov [rsp + 16], rcx
        &[0x31, 0xc9],                   // xor ecx, ecx
        &[0x48, 0x89, 0x4c, 0x24, 0x08], // mov [rsp + 8], rcx
    ]
    .concat();
    let tail = [
        &[0x48, 0x8b, 0x4c, 0x24, 0x08][..], // mov rcx, [rsp + 8]
        between,                             //
        &[0x41, 0x0f, 0xb6, 0x04, 0x08],     // movzx eax, byte [r8 + rcx]
        &[0x48, 0x83, 0xc4, 0x20],           // add rsp, 32
        &[0xc3],                             // ret
    ]
    .concat();
    let code = [&head[..], &tail].concat();
    let listing = Listing::new(BASE, &code);
    let judge = || Judge::new(&listing, layout, &[BASE], None);
    let ((events, _), known) = (judge().events(), judge().known());
    let subject = Subject { listing: &listing, known: &known, frame: 0, layout, functions: &[BASE] };
    let mut all = sites::changes(&listing, &events, 0).into_iter().flatten();
    let change = all.find(|change| change.at == head.len() && change.what == "next slot" && change.moved == 8).unwrap();
    classes::class(&subject, &events, &change, &change.apply(&listing).unwrap()).is_ok()
}

#[test]
fn a_reload_of_another_slot_is_harmless_if_that_is_bounded() {
    assert!(explained(ARENA, WORD, &[]));
    assert!(!explained(ARENA, ALL, &[]));
    assert!(explained(REGION, BYTE, &[]));
    assert!(!explained(REGION, HALF, &[]));
    assert!(!explained(REGION, WORD, &[]));
}

/// Words that the layout names lie at a constant address.
#[test]
fn a_reload_of_another_slot_is_harmless_if_named_words_bound_it() {
    let words = 0x7f00_0000_1000_u64;
    let layout = Layout { words: std::iter::once(words..words + 64).collect(), ..layout(5) };
    let masked = |mask: u8| {
        // mov r8, words; and ecx, mask
        let between = [&[0x49, 0xb8][..], &words.to_le_bytes(), &[0x83, 0xe1, mask]].concat();
        // mov rcx, rsi
        explained_in(&layout, ARENA, &[0x48, 0x89, 0xf1], &between)
    };
    assert!(masked(0x3f));
    assert!(!masked(0x7f), "some of it is past the words");
}

#[test]
fn another_argument_is_harmless_if_the_callee_is_listed_with_it() {
    const CODE: u64 = 0x5555_0000_1000;
    let callee = |number| Callee {
        address: CODE,
        arguments: vec![Argument::Number(number), Argument::Context],
        stack: 0,
        returns: Returns::Number,
    };
    let layout = Layout { callees: vec![callee(0), callee(0x77)], ..layout(5) };
    let call = |context: &[u8]| {
        let code = CODE.to_le_bytes();
        // mov rdi, rcx; mov rax, CODE; call rax
        [context, &[0x48, 0x89, 0xcf, 0x48, 0xb8], &code, &[0xff, 0xd0]].concat()
    };
    let is_explained = |number: u8, context: &[u8]| {
        // mov ecx, number
        explained_in(&layout, ARENA, &[0xb9, number, 0, 0, 0], &call(context))
    };
    // mov rsi, rdi; mov rsi, rcx
    let (context, number) = (&[0x48, 0x89, 0xfe], &[0x48, 0x89, 0xce]);
    assert!(is_explained(0x77, context));
    assert!(!is_explained(0x78, context));
    assert!(!is_explained(0x77, number));
}

/// `sub rcx, imm` or `sub ecx, imm`.
fn sub(wide: bool, by: i32) -> Vec<u8> {
    let prefix: &[u8] = if wide { &[0x48] } else { &[] };
    [prefix, &[0x81, 0xe9], &by.to_le_bytes()].concat()
}

#[test]
fn to_subtract_a_negative_constant_is_to_add() {
    let margin = MARGIN as i32;
    for makes in [BYTE, WORD] {
        assert!(explained(ARENA, makes, &sub(true, -8)));
        assert!(explained(ARENA, makes, &sub(true, -margin)));
    }
    // The greatest word and one byte more than the margin.
    assert!(!explained(ARENA, WORD, &sub(true, -margin - 1)));
    assert!(explained(ARENA, BYTE, &sub(true, -margin - 1)));
    // What is subtracted from any number is any number.
    assert!(!explained(ARENA, ALL, &sub(true, -8)));
    // Masked: the sum wraps around.
    assert!(explained(ARENA, WORD, &sub(false, -8)));
    assert!(explained(ARENA, ALL, &sub(false, -8)));
    // Below zero, and past the table.
    assert!(!explained(REGION, BYTE, &sub(true, 8)));
    assert!(!explained(REGION, BYTE, &sub(true, -8)));
    // and ecx, 0xf
    let nibble = [0x83, 0xe1, 0x0f];
    assert!(explained(REGION, ALL, &[&nibble[..], &sub(true, -0xf0)].concat()));
    assert!(!explained(REGION, ALL, &[&nibble[..], &sub(true, -0xf1)].concat()));
    // sub ecx, -8 in its short form: 8..=23 of at most 15, any word of other numbers.
    let short = [0x83, 0xe9, 0xf8];
    assert!(explained(REGION, ALL, &[&nibble[..], &short].concat()));
    assert!(!explained(REGION, BYTE, &short));
    assert!(explained(ARENA, ALL, &short) && !explained(REGION, WORD, &short));
}

#[test]
fn a_write_of_low_bytes_keeps_the_upper_ones() {
    let (cl, ch, cx) = (&[0x88, 0xc1], &[0x88, 0xc5], &[0x66, 0x89, 0xc1]); // mov cl, al; mov ch, al; mov cx, ax
    assert!(explained(REGION, BYTE, cl));
    assert!(!explained(REGION, HALF, cl));
    assert!(!explained(REGION, BYTE, ch));
    assert!(!explained(REGION, BYTE, cx));
    let (rotates, counts) = (&[0x66, 0xc1, 0xc1, 0x08], &[0x66, 0xf3, 0x0f, 0xbd, 0xc8]); // rol cx, 8; lzcnt cx, ax
    for write in [&cl[..], ch, cx, rotates, counts] {
        assert!(explained(ARENA, BYTE, write));
        assert!(explained(ARENA, WORD, write));
        // The upper half is still any.
        assert!(!explained(ARENA, ALL, write));
    }
    // shr ecx, 28: at most 15 before, and then what a byte holds.
    let nibble = [0xc1, 0xe9, 0x1c];
    let add = |by: u8| [0x48, 0x83, 0xc1, by]; // add rcx, by
    assert!(explained(REGION, WORD, &[&nibble[..], &add(0x70)].concat()));
    assert!(!explained(REGION, WORD, &[&nibble[..], cl, &add(1)].concat()));
    assert!(explained(REGION, WORD, &[&nibble[..], cl].concat()));
    // 0x110..=0x11f before, 0x100..=0x1ff then: all of it is past the table.
    let behind = |write: &[u8], by: u32| {
        let up = [&nibble[..], &[0x48, 0x81, 0xc1, 0x10, 1, 0, 0], write].concat(); // add rcx, 0x110
        let down = [&[0x48, 0x81, 0xe9][..], &by.to_le_bytes()].concat(); // sub rcx, by
        explained(REGION, WORD, &[up, down].concat())
    };
    assert!(behind(&[], 0x100) && behind(&[], 0x110));
    assert!(!behind(cl, 0) && behind(cl, 0x100));
    assert!(!behind(cl, 0xff) && !behind(cl, 0x101) && !behind(cl, 0x110));
    assert!(!behind(cx, 0x100) && !behind(rotates, 0x100) && !behind(counts, 0x100));
}

#[test]
fn the_upper_bytes_of_the_number_of_functions_are_known() {
    let load = [0x48, 0x8b, 0x4f, COUNT]; // mov rcx, [rdi + COUNT]
    let outcome = [&load[..], &[0x48, 0x39, 0xca, 0x0f, 0x93, 0xc1]].concat(); // cmp rdx, rcx; setae cl
    for (functions, harmless) in [(1, true), (5, true), (0xff, true), (0x100, false), (0x1ff, false)] {
        assert_eq!(explained_in(&layout(functions), REGION, &outcome, &[]), harmless, "{functions} functions");
    }
    // Another register's upper bytes are any.
    assert!(!explained(REGION, &[&load[..], ALL, &outcome[4..]].concat(), &[]));
}

#[test]
fn the_difference_of_equal_words_is_zero() {
    let (copy, slot) = (&[0x48, 0x89, 0xc8], &[0x48, 0x8b, 0x44, 0x24, 0x10]); // mov rax, rcx; mov rax, [rsp + 16]
    let (xor, sub) = (&[0x48, 0x31, 0xc1], &[0x48, 0x29, 0xc1]); // xor rcx, rax; sub rcx, rax
    for equal in [&copy[..], slot] {
        for zero in [xor, sub] {
            assert!(explained(REGION, ALL, &[equal, zero].concat()));
            // One of the two has become another word: inc rax, inc rcx, mov rax, rsi, add rcx, rsi.
            for other in [[0x48, 0xff, 0xc0], [0x48, 0xff, 0xc1], [0x48, 0x89, 0xf0], [0x48, 0x01, 0xf1]] {
                assert!(!explained(REGION, ALL, &[equal, &other, zero].concat()));
            }
        }
        assert!(!explained(REGION, ALL, &[equal, &[0x48, 0x01, 0xc1]].concat())); // add rcx, rax
    }
    // mov eax, ecx: half of it is equal.
    assert!(!explained(REGION, ALL, &[&[0x89, 0xc8][..], xor].concat()));
    // No two words of which nothing is known are equal.
    assert!(!explained(REGION, ALL, xor) && !explained(REGION, ALL, sub));
    // and ecx, 0xf; xor rax, rsi; add rcx, rax
    assert!(!explained(REGION, ALL, &[0x83, 0xe1, 0x0f, 0x48, 0x31, 0xf0, 0x48, 0x01, 0xc1]));
}

/// A jump through a table of four entries, which goes on without what differs. `load` is the instruction that reads it.
fn switch(load: &[u8; 4]) -> Vec<u8> {
    [
        &[0x48, 0x8d, 0x05, 9, 0, 0, 0][..],                   // lea rax, [rip + 9]
        load,                                                  //
        &[0x48, 0x01, 0xc2, 0xff, 0xe2],                       // add rdx, rax; jmp rdx
        &[16, 0, 0, 0, 18, 0, 0, 0, 16, 0, 0, 0, 18, 0, 0, 0], // to what follows
        &[0x31, 0xc9, 0x31, 0xc9],                             // xor ecx, ecx; xor ecx, ecx
    ]
    .concat()
}

#[test]
fn a_jump_to_another_entry_of_its_table_is_harmless() {
    let and = |mask: u8| [0x83, 0xe1, mask]; // and ecx, mask
    let (fours, twos) = (switch(&[0x48, 0x63, 0x14, 0x88]), switch(&[0x48, 0x63, 0x14, 0x48])); // movsxd rdx, [rax + rcx * 4]
    assert!(explained(REGION, ALL, &[&and(3)[..], &fours].concat()));
    // Past the last entry.
    assert!(!explained(REGION, ALL, &[&and(4)[..], &fours].concat()));
    assert!(!explained(REGION, ALL, &[&and(7)[..], &fours].concat()));
    // Between two entries, by the scale and by the base.
    assert!(!explained(REGION, ALL, &[&and(3)[..], &twos].concat()));
    let odd = [&fours[..7], &[0x83, 0xe2, 0x01, 0x48, 0x01, 0xd0], &fours[7..]].concat(); // and edx, 1; add rax, rdx
    let odd = [&[0x48, 0x8d, 0x05, 15, 0, 0, 0][..], &odd[7..]].concat();
    assert!(!explained(REGION, ALL, &[&and(1)[..], &odd].concat()));
    assert!(!explained(REGION, ALL, &fours));
}
