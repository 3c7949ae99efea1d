//! Order of C declarations: definitions and forward declarations that must precede others.
//!
//! C wants a type *complete* where it is a member or an element, and *named* where it is pointed to, returned or
//! passed. A struct is named by `struct x;`, a typedef and an enum by their whole definition. What is anonymous is
//! written inside what uses it, so only what is inside it matters.
//!
//! A walk over the types with its own stack, since BTF from a file can be nested as deep as it likes.

use super::super::query::MAX_DEPTH;
use super::super::{BtfError, Type, TypeId};
use super::Printer;
use super::names::Space;

/// What is known of each type.
#[derive(Debug)]
pub(super) struct States(Vec<u8>);

/// It can be named.
const NAMED: u8 = 1;
/// It is complete.
const DONE: u8 = 2;
/// What it needs is being written.
const BUSY: u8 = 4;

impl States {
    pub(super) fn new(last: u32) -> States {
        States(vec![0; last as usize + 1])
    }

    fn has(&self, id: TypeId, what: u8) -> bool {
        self.0.get(id.0 as usize).is_some_and(|state| state & what != 0)
    }

    fn set(&mut self, id: TypeId, what: u8) {
        if let Some(state) = self.0.get_mut(id.0 as usize) {
            *state = *state & !BUSY | what;
        }
    }

    /// Whether the type was written: alone, or inside another.
    pub(super) fn is_done(&self, id: TypeId) -> bool {
        self.has(id, DONE)
    }

    /// A type without a name was written inside another.
    pub(super) fn written(&mut self, id: TypeId) {
        self.set(id, NAMED | DONE);
    }
}

/// How much of a type must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Name,
    Complete,
}

#[derive(Debug)]
enum Step {
    /// Sees to it that a type is there, for the body of `owner`, which can name itself.
    Want { id: TypeId, need: Need, owner: TypeId },
    /// All that a struct, union or typedef needs is there.
    Finish(TypeId),
}

impl Printer<'_> {
    /// Writes the definition of a type, after all it needs.
    pub(super) fn define(&mut self, id: TypeId) -> Result<(), BtfError> {
        self.run(Step::Want { id, need: Need::Complete, owner: TypeId::VOID })
    }

    /// Makes sure that a type can be pointed to.
    pub(super) fn name(&mut self, id: TypeId) -> Result<(), BtfError> {
        self.run(Step::Want { id, need: Need::Name, owner: TypeId::VOID })
    }

    fn run(&mut self, first: Step) -> Result<(), BtfError> {
        let mut steps = vec![first];
        while let Some(step) = steps.pop() {
            match step {
                Step::Want { id, need, owner } => self.want(id, need, owner, &mut steps)?,
                Step::Finish(id) => self.finish(id)?,
            }
        }
        Ok(())
    }

    fn want(&mut self, mut id: TypeId, mut need: Need, owner: TypeId, steps: &mut Vec<Step>) -> Result<(), BtfError> {
        let first = id;
        for _ in 0..MAX_DEPTH {
            if self.states.has(id, DONE) {
                return Ok(());
            }
            match self.btf.get(id)? {
                Type::Ptr(to) => (id, need) = (to, Need::Name),
                // Elements must be complete even for a pointer to the array.
                Type::Array(array) => (id, need) = (array.elem, Need::Complete),
                Type::Const(to) | Type::Volatile(to) | Type::Restrict(to) | Type::TypeTag(to) => id = to,
                Type::DeclTag { target, .. } | Type::Var { type_id: target, .. } => id = target,
                Type::Func { proto, .. } => id = proto,
                Type::Void => return Ok(()),
                Type::Int(_) | Type::Float { .. } => return self.finish(id),
                Type::Enum(_) | Type::Enum64(_) => return self.finish(id),
                Type::Fwd { .. } => match self.forwards.get(&id) {
                    Some(&target) if target != id => id = target,
                    _ => return self.finish(id),
                },
                Type::Typedef(to) => return self.want_typedef(id, to, need, steps),
                Type::Struct(_) | Type::Union(_) => return self.want_composite(id, need, owner, steps),
                Type::FuncProto(proto) => {
                    self.states.set(id, DONE);
                    let all = proto.params().map(|param| param.type_id).chain([proto.result]);
                    steps.extend(all.map(|id| Step::Want { id, need: Need::Name, owner: TypeId::VOID }));
                    return Ok(());
                }
                Type::Datasec(_) => return Ok(()),
            }
        }
        Err(BtfError::TooDeep { id: first, limit: MAX_DEPTH })
    }

    fn want_typedef(&mut self, id: TypeId, to: TypeId, need: Need, steps: &mut Vec<Step>) -> Result<(), BtfError> {
        let owner = TypeId::VOID;
        if need == Need::Complete {
            steps.push(Step::Want { id: to, need, owner });
        }
        if !self.states.has(id, NAMED) {
            self.begin(id)?;
            steps.push(Step::Finish(id));
            steps.push(Step::Want { id: to, need: Need::Name, owner });
        }
        Ok(())
    }

    fn want_composite(&mut self, id: TypeId, need: Need, owner: TypeId, steps: &mut Vec<Step>) -> Result<(), BtfError> {
        let (Type::Struct(found) | Type::Union(found)) = self.btf.get(id)? else { return Ok(()) };
        let anonymous = self.btf.name(id).is_empty();
        if !anonymous && need == Need::Name {
            if id != owner && !self.states.has(id, NAMED) {
                self.forward(id)?;
            }
            return Ok(());
        }
        self.begin(id)?;
        steps.push(Step::Finish(id));
        let owner = if anonymous { owner } else { id };
        let start = steps.len();
        let members = found.members().map(|member| member.type_id);
        steps.extend(members.map(|id| Step::Want { id, need: Need::Complete, owner }));
        steps[start..].reverse();
        Ok(())
    }

    fn begin(&mut self, id: TypeId) -> Result<(), BtfError> {
        if self.states.has(id, BUSY) {
            return Err(BtfError::Endless { id, name: self.btf.type_name(id) });
        }
        self.states.0[id.0 as usize] |= BUSY;
        Ok(())
    }

    /// `struct x;`
    fn forward(&mut self, id: TypeId) -> Result<(), BtfError> {
        let busy = if self.states.has(id, BUSY) { BUSY } else { 0 };
        self.states.set(id, NAMED | busy);
        self.tag(id)?;
        self.out.push_str(";\n\n");
        Ok(())
    }

    /// Writes a type whose needs are there, unless others write it inside them.
    fn finish(&mut self, id: TypeId) -> Result<(), BtfError> {
        match self.btf.get(id)? {
            Type::Struct(found) => self.find_shape(id, &found, false)?,
            Type::Union(found) => self.find_shape(id, &found, true)?,
            Type::Typedef(_) => {
                self.states.set(id, NAMED);
                self.typedef(id)?;
                return self.check_length(id);
            }
            Type::Fwd { .. } if !self.states.has(id, NAMED) => return self.forward(id),
            Type::Fwd { .. } => return Ok(()),
            Type::Int(int) if !is_c_int(self.btf.name(id)) => self.foreign_int(id, int.size, int.signed)?,
            Type::Int(_) | Type::Float { .. } => (),
            // One without a name is written where it is used, and else at the end.
            Type::Enum(_) | Type::Enum64(_) if self.btf.name(id).is_empty() => return Ok(()),
            Type::Enum(_) | Type::Enum64(_) => (),
            Type::Void | Type::Ptr(_) | Type::Array(_) | Type::Volatile(_) | Type::Const(_) | Type::Restrict(_) => (),
            Type::Func { .. } | Type::FuncProto(_) | Type::Var { .. } | Type::Datasec(_) => (),
            Type::DeclTag { .. } | Type::TypeTag(_) => (),
        }
        self.states.set(id, NAMED | DONE);
        let named = !self.btf.name(id).is_empty();
        if named && !matches!(self.btf.get(id)?, Type::Int(_) | Type::Float { .. }) {
            self.definition(id)?;
        }
        self.check_length(id)
    }

    /// An integer type of a compiler that is not C's, as a typedef of one that is.
    fn foreign_int(&mut self, id: TypeId, size: u32, signed: bool) -> Result<(), BtfError> {
        let name = self.names.of(self.btf, id, Space::Ordinary);
        let sign = if signed { "signed" } else { "unsigned" };
        let kind = match size {
            1 => "char",
            2 => "short",
            4 => "int",
            8 => "long long",
            16 => "__int128",
            _ => return Err(BtfError::Field { id, what: "size of an integer", value: size }),
        };
        self.out.extend(["typedef ", sign, " ", kind, " ", &name, ";\n\n"]);
        Ok(())
    }
}

/// Whether the name consists of C's words for integers.
pub(super) fn is_c_int(name: &str) -> bool {
    let is_word = |word| {
        matches!(word, "char" | "short" | "int" | "long" | "signed" | "unsigned" | "_Bool" | "__int128" | "__int128__")
    };
    !name.is_empty() && name.split(' ').all(is_word)
}
