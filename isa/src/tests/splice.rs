use crate::{
    Endian, LowerFrameError, Moved, Raw, SpliceError, asm, decode_all, difference, disasm, encode_all, lower_frame,
    splice,
};

fn raws(text: &str) -> Vec<Raw> {
    asm::parse(text).unwrap().into_iter().map(|insn| insn.encode()).collect()
}

fn text(raws: &[Raw]) -> String {
    let bytes: Vec<u8> = raws.iter().flat_map(|raw| raw.to_bytes(Endian::Little)).collect();
    disasm(&decode_all(&bytes, Endian::Little).unwrap())
}

const LOOP: &str = "again:\nr1 += -1\nif r1 != 0 goto again\ncall sub\nexit\nsub:\nr0 = 0x1122334455667788 ll\ngotol end\n\
    r0 = 1\nend:\nexit";

/// What a reader of the spliced text would write.
fn after(at: usize, remove: usize, insert: &str) -> Result<(Moved, String), SpliceError> {
    let mut insns = raws(LOOP);
    let moved = splice(&mut insns, at, remove, &raws(insert))?;
    Ok((moved, text(&insns)))
}

#[test]
fn a_prologue_runs_once() {
    let (moved, found) = after(0, 0, "r9 = 1\nr8 = 2").unwrap();
    let expected = format!("r9 = 1\nr8 = 2\n{LOOP}");
    assert_eq!(found, text(&raws(&expected)));
    assert_eq!((moved.insn(0), moved.start(0), moved.start(1)), (Some(2), Some(0), Some(3)));
}

#[test]
fn a_call_enters_what_is_put_before_a_function() {
    let (_, found) = after(4, 0, "r9 = 1").unwrap();
    assert_eq!(found, text(&raws(&LOOP.replace("sub:\n", "sub:\nr9 = 1\n"))));
}

#[test]
fn jumps_across_an_insertion_get_longer() {
    let (_, found) = after(7, 1, "r0 = 2\nr0 = 3").unwrap();
    assert_eq!(found, text(&raws(&LOOP.replace("r0 = 1\n", "r0 = 2\nr0 = 3\n"))));
    let (_, found) = after(7, 1, "").unwrap();
    assert_eq!(found, text(&raws(&LOOP.replace("r0 = 1\n", ""))));
}

#[test]
fn a_failed_splice_changes_nothing() {
    assert_eq!(after(5, 0, "r0 = 1"), Err(SpliceError::Place { at: 5 }));
    assert_eq!(after(4, 1, "r0 = 1"), Err(SpliceError::Place { at: 4 }));
    assert_eq!(after(8, 9, ""), Err(SpliceError::Place { at: 8 }));
    assert_eq!(after(7, 2, ""), Err(SpliceError::Target { pc: 6 }));
    let mut insns = raws(&format!("if r1 != 0 goto +1\n{LOOP}"));
    let before = insns.clone();
    let many = vec![raws("r0 = 1")[0]; 40_000];
    assert_eq!(splice(&mut insns, 1, 0, &many), Err(SpliceError::Far { pc: 0 }));
    assert_eq!(insns, before);
}

#[test]
fn a_rewritten_stream_is_compared() {
    let old = raws(LOOP);
    let mut new = old.clone();
    let moved = splice(&mut new, 0, 0, &raws("r9 = 1\nr8 = 2")).unwrap();
    assert_eq!(difference(&old, &new), moved);
    assert_eq!(difference(&old, &old), Moved { at: 0, removed: 0, inserted: 0 });
    assert_eq!(difference(&old, &[]), Moved { at: 0, removed: old.len(), inserted: 0 });
    assert_eq!(encode_all(&asm::parse(LOOP).unwrap(), Endian::Little).len(), old.len() * 8);
}

/// The function with its frame lowered by 64 bytes.
fn lowered(function: &str) -> Result<String, LowerFrameError> {
    let mut insns = raws(function);
    for (at, raw) in lower_frame(&mut insns, 512, 64)? {
        splice(&mut insns, at, 0, &[raw]).unwrap();
    }
    Ok(text(&insns))
}

#[test]
fn a_frame_is_lowered_where_the_frame_pointer_is_a_base() {
    let before = "*(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += -448\nr3 = *(u32 *)(r10 - 448)\nr4 = 0x1122 ll\ncall 5\n*(u8 *)(r10 - 1) = 7\nexit";
    let after = "*(u64 *)(r10 - 72) = r1\nr2 = r10\nr2 += -64\nr2 += -448\nr3 = *(u32 *)(r10 - 512)\nr4 = 0x1122 ll\ncall 5\n*(u8 *)(r10 - 65) = 7\nexit";
    assert_eq!(lowered(before), Ok(text(&raws(after))));
    let room = |left| Err(LowerFrameError::Room { left, needed: 64 });
    assert_eq!(lowered("*(u64 *)(r10 - 456) = r1\nexit"), room(56));
    assert_eq!(lowered("r2 = r10\nr2 += -512\nexit"), room(0));
    assert_eq!(lowered("r0 = 0\nr1 += r10\nexit"), Err(LowerFrameError::Pointer(1)));
    assert_eq!(lowered("*(u64 *)(r1 + 0) = r10\nexit"), Err(LowerFrameError::Pointer(0)));
    // An offset has 16 bits, however large frames are.
    let mut insns = raws("*(u64 *)(r10 - 32760) = r1\nexit");
    assert_eq!(lower_frame(&mut insns, 1 << 20, 64), room(8).map(|_: String| Vec::new()));
}
