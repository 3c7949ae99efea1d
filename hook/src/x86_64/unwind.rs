//! Unwind information of stubs, so that exceptions, `pthread_exit` and `backtrace` pass through them.
//!
//! Format: DWARF 5, 6.4, as `.eh_frame` has it (Linux Standard Base, Core, 10.6.1).
#![expect(unsafe_code, reason = "the unwinder's registration")]

use std::mem::offset_of;

use super::layout::{HALF, RECORDS, RED_ZONE, RETURN, RETURNED, SLOT};
use super::site::Site;

unsafe extern "C" {
    fn __register_frame(begin: *const u8);
}

const RSP: u8 = 7;
const R11: u8 = 11;
const RETURN_ADDRESS: u8 = 16;

const DEF_CFA: u8 = 0x0c;
const DEF_CFA_EXPRESSION: u8 = 0x0f;
const OFFSET: u8 = 0x80;
const VAL_EXPRESSION: u8 = 0x16;

const DW_OP_DEREF: u8 = 0x06;
const DW_OP_CONST4U: u8 = 0x0c;
const DW_OP_CONST8U: u8 = 0x0e;
const DW_OP_AND: u8 = 0x1a;
const DW_OP_MINUS: u8 = 0x1c;
const DW_OP_PLUS: u8 = 0x22;
const DW_OP_SHL: u8 = 0x24;
const DW_OP_GE: u8 = 0x2a;
const DW_OP_LIT0: u8 = 0x30;
const DW_OP_BREG0: u8 = 0x70;

/// Gives the unwinder a section, for good.
pub(super) fn register(section: Vec<u8>) {
    let section: &'static [u8] = section.leak();
    // SAFETY: it is a whole section with its terminator, and stays.
    unsafe { __register_frame(section.as_ptr()) };
}

/// Of entry stubs: the only call in them is after `push r11`.
pub(super) fn of_entries(start: u64, bytes: u64) -> Vec<u8> {
    section("zR", &[DEF_CFA, RSP, 16, OFFSET | RETURN_ADDRESS, 1, OFFSET | R11, 2], start, bytes)
}

/// Of stubs inside functions: the frame of the function itself is next, at the instruction that the stub runs before, and
/// that is no return address ("S"). The site has it.
pub(super) fn of_insides(start: u64, bytes: u64) -> Vec<u8> {
    let below = RED_ZONE + 8;
    let site = HALF as u32 + offset_of!(Site, address) as u32;
    // (pc & -SLOT) + what the site is away: a load.
    let mut expression = vec![DW_OP_BREG0 + RETURN_ADDRESS, 0, DW_OP_CONST8U];
    expression.extend_from_slice(&SLOT.wrapping_neg().to_le_bytes());
    expression.extend_from_slice(&[DW_OP_AND, DW_OP_CONST4U]);
    expression.extend_from_slice(&site.to_le_bytes());
    expression.extend_from_slice(&[DW_OP_PLUS, DW_OP_DEREF]);
    // 136 takes two bytes of LEB128.
    const { assert!(RED_ZONE + 8 == 136) };
    let mut rules = vec![DEF_CFA, RSP, 0x88, 0x01, OFFSET | R11, (below / 8) as u8];
    rules.extend_from_slice(&[VAL_EXPRESSION, RETURN_ADDRESS, expression.len() as u8]);
    rules.extend(expression);
    section("zRS", &rules, start, bytes)
}

/// Of return stubs. The return address is what the record of the stub says, one less: the frame is one of a signal
/// ("S"), lest it have the same identity as its caller, and after such frames unwinders take addresses as they are.
pub(super) fn of_returns(start: u64, bytes: u64) -> Vec<u8> {
    const { assert!(RETURN == 32 && RETURNED == 9) };
    // The stack pointer, and 8 more where it is at the return address: but for the 10 bytes after the first `lea`.
    let mut cfa = vec![DW_OP_BREG0 + RETURN_ADDRESS, 0, DW_OP_LIT0 + 5, DW_OP_MINUS, DW_OP_LIT0 + 31, DW_OP_AND];
    cfa.extend_from_slice(&[DW_OP_LIT0 + 10, DW_OP_GE, DW_OP_LIT0 + 3, DW_OP_SHL, DW_OP_BREG0 + RSP, 0, DW_OP_PLUS]);
    // (pc & -RETURN) + RECORDS, a load, less 1. What that is for a stub that stands for another one's return has the
    // other as its pc, less 1.
    let mut expression = vec![DW_OP_BREG0 + RETURN_ADDRESS, 0, DW_OP_CONST8U];
    expression.extend_from_slice(&RETURN.wrapping_neg().to_le_bytes());
    expression.extend_from_slice(&[DW_OP_AND, DW_OP_CONST4U]);
    expression.extend_from_slice(&(RECORDS as u32).to_le_bytes());
    expression.extend_from_slice(&[DW_OP_PLUS, DW_OP_DEREF, DW_OP_LIT0 + 1, DW_OP_MINUS]);
    let mut rules = vec![DEF_CFA_EXPRESSION, cfa.len() as u8];
    rules.extend(cfa);
    rules.extend_from_slice(&[VAL_EXPRESSION, RETURN_ADDRESS, expression.len() as u8]);
    rules.extend(expression);
    section("zRS", &rules, start, bytes)
}

/// A CIE with `rules`, one FDE for the whole range, and the terminator.
fn section(augmentation: &str, rules: &[u8], start: u64, bytes: u64) -> Vec<u8> {
    let mut cie = vec![0, 0, 0, 0, 1];
    cie.extend_from_slice(augmentation.as_bytes());
    // Code in units of 1, data of -8, addresses absolute.
    cie.extend_from_slice(&[0, 1, 0x78, RETURN_ADDRESS, 1, 0]);
    cie.extend_from_slice(rules);
    let mut all = Vec::new();
    record(&mut all, cie);
    // From the field to the CIE.
    let mut fde = (all.len() as u32 + 4).to_le_bytes().to_vec();
    fde.extend_from_slice(&start.to_le_bytes());
    fde.extend_from_slice(&bytes.to_le_bytes());
    fde.push(0);
    record(&mut all, fde);
    all.extend_from_slice(&[0; 4]);
    all
}

fn record(section: &mut Vec<u8>, mut content: Vec<u8>) {
    // DW_CFA_nop.
    content.resize((content.len() + 4).next_multiple_of(8) - 4, 0);
    section.extend_from_slice(&(content.len() as u32).to_le_bytes());
    section.extend(content);
}
