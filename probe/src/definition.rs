//! What a definition asks for: where, and which arguments.

use crate::error::Error;

/// Where a probe goes and what it takes there. Made from perf's notation by the loader's parser of section names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Function name or glob; names of C++ and Rust with or without their scopes.
    pub function: Option<String>,
    /// Source file, or the last parts of its path.
    pub file: Option<String>,
    /// Position inside the function or file.
    pub position: Position,
    /// The arguments, in order.
    pub args: Vec<Argument>,
    /// Whether inlined copies of the function are points as well.
    pub inlines: bool,
    /// Most points; perf's default is [`MOST_POINTS`].
    pub most: usize,
}

/// Most points of a definition that does not say how many, as perf has it (`--max-probes`).
pub const MOST_POINTS: usize = 128;

impl Definition {
    /// Refuses more points than it may have.
    pub(crate) fn limit(&self, count: usize) -> Result<(), Error> {
        if count > self.most { Err(Error::TooMany { count, most: self.most }) } else { Ok(()) }
    }
}

/// Position inside a function or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// First instruction; of code that was not optimised, with arguments, the first one after the prologue.
    Entry,
    /// Line: from the one on which the function begins, which is 0, or of the file, from 1.
    Line(u32),
    /// Byte offset from the first instruction.
    Offset(u64),
    /// Return to the caller.
    Return,
}

/// An argument in perf's notation: `NAME=EXPR:TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Name of the value.
    pub name: String,
    /// The text as written.
    pub text: String,
    pub(crate) base: Base,
    pub(crate) steps: Vec<Step>,
    pub(crate) cast: Option<Cast>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Variable(String),
    Return,
    Register(String),
    Symbol(String),
}

/// A step from a value to one inside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To a member: `.name`.
    Member(String),
    /// To a member of what a pointer points to: `->name`.
    Arrow(String),
    /// To an element: `[index]`.
    Index(u64),
}

/// How a value is taken in place of its own type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    /// `s`, `u` or `x`, with or without a size in bits.
    Number {
        kind: char,
        bits: Option<u8>,
    },
    String {
        user: bool,
    },
}

impl Argument {
    /// Reads `a->b[3].c`, `$retval`, `%di`, `@symbol`, and a type.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(name: &str, expr: &str, ty: Option<&str>) -> Result<Argument, Error> {
        let text = match ty {
            Some(ty) => format!("{expr}:{ty}"),
            None => expr.to_owned(),
        };
        let wrong = |why: &str| Error::Argument { text: text.clone(), why: why.to_owned() };
        let cast = ty.map(|ty| cast(ty).ok_or_else(|| wrong("its type is none of s8 to s64, u8, x8, string, ustring")));
        let begin = expr.find(['.', '[']).unwrap_or(expr.len()).min(expr.find("->").unwrap_or(expr.len()));
        let (base, rest) = expr.split_at(begin);
        let base = match base.split_at_checked(1) {
            Some(("$", "retval")) => Base::Return,
            Some(("$", _)) => return Err(wrong("the only name with $ is $retval")),
            Some(("%", register)) => Base::Register(register.to_owned()),
            Some(("@", symbol)) => Base::Symbol(symbol.to_owned()),
            Some(_) => Base::Variable(base.to_owned()),
            None => return Err(wrong("a name is missing")),
        };
        let steps = steps(rest).ok_or_else(|| wrong("after a name come only .member, ->member and [number]"))?;
        let cast = cast.transpose()?;
        Ok(Argument { name: name.to_owned(), base, steps, cast, text })
    }
}

fn steps(mut rest: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']')?;
            let parsed = match index.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => index.parse(),
            };
            steps.push(Step::Index(parsed.ok()?));
            rest = after;
            continue;
        }
        let (arrow, after) = match rest.strip_prefix("->") {
            Some(after) => (true, after),
            None => (false, rest.strip_prefix('.')?),
        };
        let end = after.find(['.', '[']).unwrap_or(after.len()).min(after.find("->").unwrap_or(after.len()));
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            return None;
        }
        steps.push(if arrow { Step::Arrow(name.to_owned()) } else { Step::Member(name.to_owned()) });
        rest = after;
    }
    Some(steps)
}

fn cast(ty: &str) -> Option<Cast> {
    match ty {
        "string" => return Some(Cast::String { user: false }),
        "ustring" => return Some(Cast::String { user: true }),
        _ => {}
    }
    let kind = ty.chars().next().filter(|kind| matches!(kind, 's' | 'u' | 'x'))?;
    let bits = match &ty[1..] {
        "" => None,
        bits => Some(bits.parse().ok().filter(|bits| matches!(bits, 8 | 16 | 32 | 64))?),
    };
    Some(Cast::Number { kind, bits })
}
