//! Call frame information: the canonical frame address (CFA) at an address.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EhFrameHdr, EhFrameOffset, Expression, Reader, Section, UnwindContext,
    UnwindSection,
};

use crate::elf::{Elf, Slice, slice};
use crate::error::Error;
use crate::machine::Register;
use crate::store::Store;

/// Bytes of the smallest row of `.eh_frame_hdr`: two addresses of two bytes.
const LEAST_ROW: usize = 4;

/// The CFA.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cfa<'a> {
    /// A register plus an offset.
    Register(Register, i64),
    Expression(Expression<Slice<'a>>, gimli::Encoding),
}

/// `.eh_frame` of the file, and `.debug_frame` of its debug information.
pub(crate) struct Frames<'a> {
    eh_frame: EhFrame<Slice<'a>>,
    header: EhFrameHdr<Slice<'a>>,
    bases: BaseAddresses,
    debug_frame: DebugFrame<Slice<'a>>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(store: &'a Store, elf: &Elf<'a>, debug: Option<&Elf<'a>>) -> Result<Frames<'a>, Error> {
        let mut bases = BaseAddresses::default();
        for (name, set) in [
            (".eh_frame", BaseAddresses::set_eh_frame as fn(BaseAddresses, u64) -> BaseAddresses),
            (".eh_frame_hdr", BaseAddresses::set_eh_frame_hdr),
            (".text", BaseAddresses::set_text),
            (".got", BaseAddresses::set_got),
        ] {
            if let Some(address) = elf.section_address(name) {
                bases = set(bases, address);
            }
        }
        let own = elf.section(store, ".debug_frame")?;
        let bytes = match debug {
            Some(debug) if own.is_empty() => debug.section(store, ".debug_frame")?,
            _ => own,
        };
        let mut debug_frame = DebugFrame::from(slice(bytes));
        debug_frame.set_address_size(8);
        let mut eh_frame = EhFrame::from(slice(elf.section(store, ".eh_frame")?));
        eh_frame.set_address_size(8);
        let header = EhFrameHdr::from(slice(elf.section(store, ".eh_frame_hdr")?));
        Ok(Frames { eh_frame, header, bases, debug_frame })
    }

    /// The CFA where an instruction is about to run.
    pub(crate) fn cfa(&self, pc: u64) -> Option<Cfa<'a>> {
        self.by_header(pc)
            .or_else(|| cfa(&self.debug_frame, &self.bases, pc))
            .or_else(|| cfa(&self.eh_frame, &self.bases, pc))
    }

    /// By the table of `.eh_frame_hdr`. gimli multiplies the number of its rows and subtracts its addresses without a check
    /// (fixed after 0.34 by its pull requests 896 and 897), so that both are checked here.
    fn by_header(&self, pc: u64) -> Option<Cfa<'a>> {
        let header = self.header.parse(&self.bases, 8).ok()?;
        let table = header.table()?;
        let (rows, _) = table.iter(&self.bases).size_hint();
        if rows > self.header.reader().len() / LEAST_ROW {
            return None;
        }
        let begin = header.eh_frame_ptr().direct().ok()?;
        let offset = table.lookup(pc, &self.bases).ok()?.direct().ok()?.checked_sub(begin)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let fde = self.eh_frame.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()?;
        if fde.contains(pc) { row(&self.eh_frame, &self.bases, &fde, pc) } else { None }
    }
}

fn cfa<'a, S: UnwindSection<Slice<'a>> + Section<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    pc: u64,
) -> Option<Cfa<'a>> {
    let fde = section.fde_for_address(bases, pc, S::cie_from_offset).ok()?;
    row(section, bases, &fde, pc)
}

fn row<'a, S: UnwindSection<Slice<'a>> + Section<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    fde: &gimli::FrameDescriptionEntry<Slice<'a>>,
    pc: u64,
) -> Option<Cfa<'a>> {
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, pc).ok()?;
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some(Cfa::Register(Register(register.0), *offset)),
        CfaRule::Expression(expression) => Some(Cfa::Expression(expression.get(section).ok()?, fde.cie().encoding())),
    }
}
