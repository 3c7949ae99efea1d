//! The three tables. A row is one operation: how it is spelled, encoded and constrained.

/// Operand width: the 32-bit forms zero the upper half of their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 32 bits: the classes `ALU` and `JMP32`.
    W32,
    /// 64 bits: the classes `ALU64` and `JMP`.
    W64,
}

impl Width {
    /// Number of bits, 32 or 64.
    pub const fn bits(self) -> u32 {
        match self {
            Width::W32 => 32,
            Width::W64 => 64,
        }
    }
}

macro_rules! groups {
    ($(#[doc = $doc:literal] $Name:ident $name:literal;)*) => {
        /// RFC 9669 section 2.4 conformance group, or one of the kernel's extensions (each can be switched off).
        ///
        /// ```
        /// use twinbpf_isa::Group;
        ///
        /// assert_eq!(Group::MayGoto.name(), "may_goto");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Group { $(#[doc = $doc] $Name),* }

        impl Group {
            /// Every group, in the order of declaration.
            pub const ALL: &'static [Group] = &[$(Group::$Name),*];

            /// Its name. The RFC's own groups take the width as a suffix, see [`Insn::conformance`](super::Insn::conformance).
            pub const fn name(self) -> &'static str {
                match self { $(Group::$Name => $name),* }
            }

            /// One line on what is in it.
            pub const fn doc(self) -> &'static str {
                match self { $(Group::$Name => $doc),* }
            }

            /// The group with this name.
            pub fn from_name(name: &str) -> Option<Group> {
                Group::ALL.iter().copied().find(|group| group.name() == name)
            }
        }
    };
}

groups! {
    /// `base32` / `base64`; the instruction's width selects which.
    Base "base";
    /// `divmul32` / `divmul64`.
    DivMul "divmul";
    /// `atomic32` / `atomic64`.
    Atomic "atomic";
    /// Legacy packet access, `ld_abs` and `ld_ind`.
    Packet "packet";
    /// Indirect call through a register (`callx`, clang's encoding).
    Callx "callx";
    /// Bounded loop budget branch (`may_goto`).
    MayGoto "may_goto";
    /// `load_acquire` and `store_release`.
    LoadAcquire "load_acquire";
    /// `addr_space_cast`, used with arenas.
    AddrSpaceCast "addr_space_cast";
    /// Indirect jump through a register (`gotox`).
    Gotox "gotox";
}

/// Which operand fields an operation reads; all others are reserved and must be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `dst`, then a `src` register or an immediate.
    Binary,
    /// As `Binary`, register source only.
    BinaryReg,
    /// As `BinaryReg`, 64-bit form only.
    BinaryReg64,
    /// `dst` alone: no source register, no immediate.
    Unary,
}

impl Shape {
    /// Whether operations of this shape have a form of this width, with a register as source or without one.
    pub(super) const fn has_form(self, width: Width, reg: bool) -> bool {
        // A bit for each: of 32 bits without a register and with one, of 64 bits likewise.
        let forms = match self {
            Shape::Binary => 0b1111,
            Shape::BinaryReg => 0b1010,
            Shape::BinaryReg64 => 0b1000,
            Shape::Unary => 0b0101,
        };
        forms >> (2 * matches!(width, Width::W64) as u32 + reg as u32) & 1 != 0
    }
}

/// One operation of a table.
#[derive(Clone, Copy, Debug)]
pub struct Row<Op> {
    /// The operation that the row defines.
    pub op: Op,
    /// Its name in the assembler of llvm and the RFC.
    pub mnemonic: &'static str,
    /// What names it in text: the operator of `r1 += r2`, the cast of `r1 = (s8)r2`, the function of an atomic.
    pub symbol: &'static str,
    /// Opcode bits 7:4, or the immediate for atomics.
    pub code: u8,
    /// The value the offset field must hold.
    pub ext: i16,
    /// Conformance group of RFC 9669 that it belongs to.
    pub group: Group,
    /// Which operands its forms take.
    pub shape: Shape,
    /// One line on what it does.
    pub doc: &'static str,
}

macro_rules! table {
    ($(#[$doc:meta])* enum $Enum:ident;
     $($Variant:ident $mnemonic:literal $symbol:literal $code:literal $ext:literal $group:ident $shape:ident $what:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $Enum { $(#[doc = $what] $Variant),* }

        impl $Enum {
            /// Every row, in the order of the enum.
            pub const TABLE: &'static [Row<Self>] = &[$(Row {
                op: $Enum::$Variant, mnemonic: $mnemonic, symbol: $symbol, code: $code, ext: $ext,
                group: Group::$group, shape: Shape::$shape, doc: $what,
            }),*];

            /// The row of this operation.
            pub const fn row(self) -> &'static Row<Self> { &Self::TABLE[self as usize] }

            /// The operation with this code and extension field.
            pub fn find(code: u8, ext: i16) -> Option<Self> {
                Self::TABLE.iter().find(|row| row.code == code && row.ext == ext).map(|row| row.op)
            }
        }
    };
}

table! {
    /// Arithmetic and logic, RFC 9669 section 4.1. `code` is opcode bits 7:4, `ext` the offset field.
    enum AluOp;
    Add     "add"     "+="    0x0  0 Base   Binary      "dst += src";
    Sub     "sub"     "-="    0x1  0 Base   Binary      "dst -= src";
    Mul     "mul"     "*="    0x2  0 DivMul Binary      "dst *= src";
    Div     "div"     "/="    0x3  0 DivMul Binary      "dst = src != 0 ? dst / src : 0, unsigned";
    Sdiv    "sdiv"    "s/="   0x3  1 DivMul Binary      "dst = src == 0 ? 0 : src == -1 && dst == MIN ? MIN : dst / src, signed";
    Or      "or"      "|="    0x4  0 Base   Binary      "dst |= src";
    And     "and"     "&="    0x5  0 Base   Binary      "dst &= src";
    Lsh     "lsh"     "<<="   0x6  0 Base   Binary      "dst <<= src & (width - 1)";
    Rsh     "rsh"     ">>="   0x7  0 Base   Binary      "dst >>= src & (width - 1), logical";
    Neg     "neg"     "-"     0x8  0 Base   Unary       "dst = -dst";
    Mod     "mod"     "%="    0x9  0 DivMul Binary      "dst = src != 0 ? dst % src : dst, unsigned";
    Smod    "smod"    "s%="   0x9  1 DivMul Binary      "dst = src == 0 ? dst : src == -1 && dst == MIN ? 0 : dst % src, signed";
    Xor     "xor"     "^="    0xa  0 Base   Binary      "dst ^= src";
    Mov     "mov"     "="     0xb  0 Base   Binary      "dst = src";
    Movsx8  "movsx8"  "(s8)"  0xb  8 Base   BinaryReg   "dst = sign extension of the low 8 bits of src";
    Movsx16 "movsx16" "(s16)" 0xb 16 Base   BinaryReg   "dst = sign extension of the low 16 bits of src";
    Movsx32 "movsx32" "(s32)" 0xb 32 Base   BinaryReg64 "dst = sign extension of the low 32 bits of src";
    Arsh    "arsh"    "s>>="  0xc  0 Base   Binary      "dst >>= src & (width - 1), arithmetic";
}

impl AluOp {
    /// Whether the result depends on what `dst` held before.
    pub const fn reads_dst(self) -> bool {
        match self {
            AluOp::Mov | AluOp::Movsx8 | AluOp::Movsx16 | AluOp::Movsx32 => false,
            AluOp::Add
            | AluOp::Sub
            | AluOp::Mul
            | AluOp::Div
            | AluOp::Sdiv
            | AluOp::Or
            | AluOp::And
            | AluOp::Lsh
            | AluOp::Rsh
            | AluOp::Neg
            | AluOp::Mod
            | AluOp::Smod
            | AluOp::Xor
            | AluOp::Arsh => true,
        }
    }
}

table! {
    /// Branch conditions, RFC 9669 section 4.3. `code` is opcode bits 7:4.
    enum Cond;
    Eq  "jeq"  "=="  0x1 0 Base Binary "dst == src";
    Gt  "jgt"  ">"   0x2 0 Base Binary "dst > src, unsigned";
    Ge  "jge"  ">="  0x3 0 Base Binary "dst >= src, unsigned";
    Set "jset" "&"   0x4 0 Base Binary "dst & src";
    Ne  "jne"  "!="  0x5 0 Base Binary "dst != src";
    Sgt "jsgt" "s>"  0x6 0 Base Binary "dst > src, signed";
    Sge "jsge" "s>=" 0x7 0 Base Binary "dst >= src, signed";
    Lt  "jlt"  "<"   0xa 0 Base Binary "dst < src, unsigned";
    Le  "jle"  "<="  0xb 0 Base Binary "dst <= src, unsigned";
    Slt "jslt" "s<"  0xc 0 Base Binary "dst < src, signed";
    Sle "jsle" "s<=" 0xd 0 Base Binary "dst <= src, signed";
}

table! {
    /// Atomic read-modify-write, RFC 9669 section 5.3. `code` is the immediate.
    enum AtomicOp;
    Add      "add"       "+="               0x00 0 Atomic BinaryReg "*addr += src";
    Or       "or"        "|="               0x40 0 Atomic BinaryReg "*addr |= src";
    And      "and"       "&="               0x50 0 Atomic BinaryReg "*addr &= src";
    Xor      "xor"       "^="               0xa0 0 Atomic BinaryReg "*addr ^= src";
    FetchAdd "fetch_add" "atomic_fetch_add" 0x01 0 Atomic BinaryReg "src = old *addr; *addr += src";
    FetchOr  "fetch_or"  "atomic_fetch_or"  0x41 0 Atomic BinaryReg "src = old *addr; *addr |= src";
    FetchAnd "fetch_and" "atomic_fetch_and" 0x51 0 Atomic BinaryReg "src = old *addr; *addr &= src";
    FetchXor "fetch_xor" "atomic_fetch_xor" 0xa1 0 Atomic BinaryReg "src = old *addr; *addr ^= src";
    Xchg     "xchg"      "xchg"             0xe1 0 Atomic BinaryReg "src = old *addr; *addr = src";
    Cmpxchg  "cmpxchg"   "cmpxchg"          0xf1 0 Atomic BinaryReg "if *addr == r0 then *addr = src; r0 = old *addr";
}
