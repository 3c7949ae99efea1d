//! One hooked function: what is attached, and what follows for its trampoline and its code.
//!
//! | callbacks | registers wanted | direct | the stub calls |
//! |---|---|---|---|
//! | 0 | | | nothing: the function is as before |
//! | 1 | no | no | the private trampoline with arguments |
//! | 1 | yes | no | the private trampoline with all registers |
//! | 1 | | yes | the direct trampoline |
//! | more | no | maybe | the list with arguments, then the direct trampoline if there is one |
//! | more | yes | maybe | the list with all registers, then the direct one |
//!
//! After ftrace (kernel/trace/ftrace.c, `ftrace_get_addr_new`). One store of the site's `target` switches between them. A
//! thread that has read the one of before finds there all callbacks that it can serve.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::breakpoints::INT3;
use super::patch::{Kind, Patch};
use super::prologue::{JUMP, MOST, Moved, NOP5, Prologue};
use super::site::{Link, List, Needs, Site};
use super::stubs::Stub;
use super::summary::Summary;
use super::{entry_points, vectors};
use crate::callback::{Callback, Point};
use crate::enabled::{Enabled, Trampoline};
use crate::memory::read_each;
use crate::modules::Function;
use crate::{Preparation, Refusal};

/// What a hook attaches.
#[derive(Clone)]
pub(crate) enum What {
    Callback(Point, Callback),
    /// The address of a trampoline that the stub calls itself.
    Direct(u64),
    /// The address of a function that runs in this one's place.
    Replacement(u64),
}

pub(super) struct Attached {
    pub(super) id: u64,
    pub(super) what: What,
}

pub(super) struct Hooked {
    function: Function,
    pub(super) prologue: Prologue,
    stub: Stub,
    /// Where threads go on that come to the place while it changes.
    redirects: Vec<(u8, u64)>,
    /// Whether its file uses AVX-512.
    is_wide: bool,
    /// What is at the place while the function is not hooked.
    bare: [u8; JUMP],
    pub(super) attached: Vec<Attached>,
    pub(super) patched: bool,
    /// A thread may be in a direct trampoline, which does not leave the body's address where [`returns`](super::returns) has it.
    had_direct: bool,
    lists: Lists,
}

/// What a site refers to: with arguments, with registers, at returns.
pub(super) type Lists = [Arc<List>; 3];

/// The lists of the function before: of a batch, most functions have the same callbacks.
#[derive(Default)]
pub(super) struct Before(Option<(Vec<u64>, bool, Lists)>);

impl Before {
    /// Any lists, of a function that gets its own.
    fn any(&self) -> Lists {
        match &self.0 {
            Some((.., lists)) => lists.clone(),
            None => [(); 3].map(|()| Arc::new(List::new(0, &[]))),
        }
    }

    fn lists(&mut self, hooked: &Hooked) -> Lists {
        let ids = || hooked.attached.iter().map(|attached| attached.id);
        match &self.0 {
            Some((known, wide, lists)) if *wide == hooked.is_wide && ids().eq(known.iter().copied()) => lists.clone(),
            _ => {
                let lists = hooked.new_lists().map(Arc::new);
                self.0 = Some((ids().collect(), hooked.is_wide, lists.clone()));
                lists
            }
        }
    }
}

impl Hooked {
    /// A function without callbacks; `bare_lists` has the lists of the functions before that were new.
    pub(super) fn new(
        function: Function,
        prologue: Prologue,
        stub: Stub,
        moved: &Moved,
        bare_lists: &mut Before,
    ) -> Hooked {
        let boundaries = std::iter::once(0).chain(prologue.boundaries.iter().copied());
        let redirects = boundaries
            .enumerate()
            .map(|(index, offset)| match moved.offsets.get(index) {
                Some(at) => (offset, stub.moved() + u64::from(*at)),
                None => (offset, prologue.after),
            })
            .collect();
        let bare = prologue.original;
        let lists = bare_lists.any();
        let is_wide = vectors::has_wide() && function.module.code().has_evex;
        let mut hooked = Hooked {
            function,
            is_wide,
            prologue,
            stub,
            redirects,
            bare,
            attached: Vec::new(),
            patched: false,
            had_direct: false,
            lists,
        };
        stub.site.address.store(hooked.function.address, Ordering::Relaxed);
        hooked.publish(bare_lists, &mut Vec::new());
        hooked
    }

    /// Where the function's own instructions begin while it is hooked.
    pub(super) fn original(&self) -> u64 {
        match self.prologue.preparation {
            Preparation::Moved | Preparation::Breakpoint => self.stub.moved(),
            _ => self.prologue.after,
        }
    }

    /// Whether it is an instruction inside a function.
    fn is_inside(&self) -> bool {
        self.function.offset() > 0
    }

    fn wants_registers(&self) -> bool {
        let mut callbacks = self.callbacks(Point::Entry).peekable();
        self.is_inside() && callbacks.peek().is_some() || callbacks.any(|callback| callback.registers)
    }

    /// Whether what moves or is written for this and the other would be the same bytes.
    pub(super) fn overlaps(&self, other: &Hooked) -> bool {
        let (one, other) = (&self.prologue, &other.prologue);
        one.address < other.after && other.address < one.after
    }

    /// Whether what moves or is written for this may be what is read at `address`, or soon after it.
    pub(super) fn is_near(&self, address: u64) -> bool {
        address < self.prologue.after && self.prologue.address < address + MOST as u64
    }

    pub(super) fn function(&self) -> &Function {
        &self.function
    }

    /// The same code may be that of another file now, which was loaded where the one before was.
    pub(super) fn rename(&mut self, function: &Function) {
        if !Arc::ptr_eq(&self.function.module, &function.module) {
            self.function = function.clone();
        }
    }

    pub(super) fn name(&self) -> &str {
        self.function.name()
    }

    /// Whether this is the state of that function, and not of one that was unloaded.
    pub(super) fn is_of(&self, function: &Function, in_memory: [u8; JUMP]) -> bool {
        self.prologue.is_of(function) && self.is_code(in_memory)
    }

    /// What memory has there.
    pub(super) fn in_memory(&self) -> [u8; JUMP] {
        read_each(&[self.prologue.address])[0]
    }

    /// Whether this is what was last written there.
    pub(super) fn is_code(&self, in_memory: [u8; JUMP]) -> bool {
        let expected = if self.patched { self.hooked_code() } else { Some(self.bare) };
        let own = self.prologue.own_bytes();
        expected.is_some_and(|code| code[..own] == in_memory[..own])
    }

    /// Whether the function may be hooked in this way: by a breakpoint where it says so, or where there is one.
    pub(super) fn serves(&self, function: &Function) -> bool {
        self.prologue.preparation != Preparation::Breakpoint || function.breakpoint || self.patched
    }

    pub(super) fn admits(&self, what: &What) -> Result<(), Refusal> {
        if self.is_inside() && !matches!(what, What::Callback(Point::Entry, _)) {
            return Err(Refusal::Inside);
        }
        let taken = |kind: fn(&What) -> bool| self.attached.iter().any(|attached| kind(&attached.what));
        match what {
            What::Direct(_) if taken(|what| matches!(what, What::Direct(_))) => {
                Err(Refusal::Taken { what: "direct trampoline" })
            }
            What::Replacement(_) if taken(|what| matches!(what, What::Replacement(_))) => {
                Err(Refusal::Taken { what: "replacement" })
            }
            _ => Ok(()),
        }
    }

    fn callbacks(&self, at: Point) -> impl Iterator<Item = &Callback> {
        self.attached.iter().filter_map(move |attached| match &attached.what {
            What::Callback(point, callback) if *point == at => Some(callback),
            _ => None,
        })
    }

    fn direct(&self) -> Option<u64> {
        self.attached.iter().find_map(|attached| if let What::Direct(to) = attached.what { Some(to) } else { None })
    }

    fn replacement(&self) -> Option<u64> {
        self.attached
            .iter()
            .find_map(|attached| if let What::Replacement(to) = attached.what { Some(to) } else { None })
    }

    /// Callbacks as ftrace counts them: all but a replacement.
    fn count(&self) -> usize {
        self.attached.iter().filter(|attached| !matches!(attached.what, What::Replacement(_))).count()
    }

    fn trampoline(&self) -> Trampoline {
        let callbacks = self.callbacks(Point::Entry).count();
        let registers = self.wants_registers();
        match self.direct() {
            Some(to) if self.count() == 1 => Trampoline::Direct(to),
            _ if callbacks > 1 && registers => Trampoline::RegsList,
            _ if callbacks > 1 => Trampoline::ArgsList,
            _ if registers => Trampoline::RegsPrivate,
            _ => Trampoline::ArgsPrivate,
        }
    }

    /// Gives trampolines what is attached now. Lists come first, then what leads to a trampoline that uses more of them;
    /// what is used no more goes to `retired`.
    pub(super) fn publish(&mut self, before: &mut Before, retired: &mut Vec<Arc<List>>) {
        let site = self.stub.site;
        let new = before.lists(self);
        let [of_args, of_regs, of_returns] = [0, 1, 2].map(|index: usize| new[index].head());
        let direct = self.direct().map_or(ptr::null_mut(), to_pointer);
        // Whatever an entry list promises to do at the return is there before it.
        let store_returns = || site.returns.store(of_returns, Ordering::Release);
        let has_returns = self.callbacks(Point::Return).next().is_some();
        // Before any thread can come to a direct trampoline.
        let body = to_pointer(self.replacement().unwrap_or_else(|| self.original()));
        site.body.store(body, Ordering::Release);
        self.had_direct |= self.direct().is_some();
        site.resume.store(if has_returns && !self.had_direct { to_resume() } else { body }, Ordering::Release);
        if has_returns {
            store_returns();
        }
        if !direct.is_null() {
            site.direct.store(direct, Ordering::Release);
        }
        let target = self.address_of(self.trampoline());
        // A direct trampoline alone does not run callbacks: it comes before they go, and goes after they came.
        let alone = matches!(self.trampoline(), Trampoline::Direct(_));
        if alone {
            site.target.store(target, Ordering::Release);
        }
        site.lists.iter().zip([of_args, of_regs]).for_each(|(slot, list)| slot.store(list, Ordering::Release));
        site.target.store(target, Ordering::Release);
        if !has_returns {
            store_returns();
        }
        if direct.is_null() {
            site.direct.store(direct, Ordering::Release);
        }
        site.summary.store(self.summary().to_word(), Ordering::Release);
        site.callback.store(self.first_callback().unwrap_or(0), Ordering::Release);
        retired.extend(std::mem::replace(&mut self.lists, new));
    }

    fn new_lists(&self) -> [List; 3] {
        let all: Vec<&Callback> = self.callbacks(Point::Entry).collect();
        let args: Vec<&Callback> = all.iter().copied().filter(|callback| !callback.registers).collect();
        let at_return: Vec<&Callback> = self.callbacks(Point::Return).collect();
        let returns = if at_return.is_empty() { 0 } else { Needs::RETURN };
        let wide = if self.is_wide { Needs::WIDE } else { 0 };
        [list(&args, returns | wide), list(&all, returns | wide), list(&at_return, wide)]
    }

    /// The code of the hooked function: the jump to the stub, or a breakpoint. Nothing where the stub is out of reach.
    fn hooked_code(&self) -> Option<[u8; JUMP]> {
        if self.prologue.preparation == Preparation::Breakpoint {
            let mut code = self.bare;
            code[0] = INT3;
            return Some(code);
        }
        let after = self.prologue.address + JUMP as u64;
        let distance = i32::try_from(self.stub.address.wrapping_sub(after).cast_signed()).ok()?;
        let mut jump = [0xe9, 0, 0, 0, 0];
        jump[1..].copy_from_slice(&distance.to_le_bytes());
        Some(jump)
    }

    /// The change that hooks the function's code, or takes the jump away.
    pub(super) fn patch(&self, hook: bool) -> Option<Patch> {
        let (address, to) = (self.prologue.address, self.hooked_code()?);
        let kind = match self.prologue.preparation {
            Preparation::Breakpoint => Kind::Breakpoint { stub: self.stub.address },
            Preparation::Moved => Kind::Moved,
            _ => Kind::Pad { over: (self.prologue.after - address - 2) as u8 },
        };
        let patch = Patch { address, from: self.bare, to, kind, redirects: self.redirects.clone() };
        if hook {
            return Some(patch);
        }
        // The jump is one instruction.
        Some(Patch { from: to, to: self.bare, redirects: self.redirects[..1].to_vec(), ..patch })
    }

    /// After the first change several nops are one.
    pub(super) fn normalised(&mut self) {
        if self.prologue.preparation == Preparation::Nops {
            self.bare = NOP5;
            self.redirects.truncate(1);
        }
    }

    pub(super) fn site(&self) -> &'static Site {
        self.stub.site
    }

    /// Nothing where the function is as before.
    pub(super) fn state(&self) -> Option<Enabled> {
        if self.attached.is_empty() && !self.patched {
            return None;
        }
        let function = (self.function.name().to_owned(), self.function.address);
        Some(self.summary().enabled(function, self.in_code(), self.first_callback(), self.stub.site.lost()))
    }

    fn summary(&self) -> Summary {
        Summary {
            count: self.count() as u16,
            returns: self.callbacks(Point::Return).count() as u16,
            registers: self.wants_registers(),
            replaced: self.replacement().is_some(),
            direct: self.direct().is_some(),
            preparation: self.prologue.preparation,
            trampoline: match self.trampoline() {
                Trampoline::Direct(_) => Trampoline::Direct(0),
                other => other,
            },
        }
    }

    fn first_callback(&self) -> Option<u64> {
        self.callbacks(Point::Entry).next().map(|callback| callback.entry as *const () as u64)
    }

    fn address_of(&self, trampoline: Trampoline) -> *mut c_void {
        let code: unsafe extern "C" fn() = match (trampoline, self.is_inside()) {
            (Trampoline::ArgsPrivate | Trampoline::RegsPrivate, true) => entry_points::twinbpf_hook_inside_private,
            (Trampoline::ArgsList | Trampoline::RegsList, true) => entry_points::twinbpf_hook_inside_list,
            (Trampoline::ArgsPrivate, false) => entry_points::twinbpf_hook_args_private,
            (Trampoline::ArgsList, false) => entry_points::twinbpf_hook_args_list,
            (Trampoline::RegsPrivate, false) => entry_points::twinbpf_hook_regs_private,
            (Trampoline::RegsList, false) => entry_points::twinbpf_hook_regs_list,
            (Trampoline::Direct(to), _) => return to_pointer(to),
        };
        (code as *mut ()).cast()
    }

    /// What the code leads to.
    fn in_code(&self) -> Option<Trampoline> {
        if !self.patched || !self.is_code(self.in_memory()) {
            return None;
        }
        let target = self.stub.site.target.load(Ordering::Acquire);
        // Inside a function those with arguments are the same code.
        let known = [Trampoline::RegsPrivate, Trampoline::RegsList, Trampoline::ArgsPrivate, Trampoline::ArgsList];
        let found = known.into_iter().find(|trampoline| self.address_of(*trampoline) == target);
        Some(found.unwrap_or(Trampoline::Direct(target.addr() as u64)))
    }
}

fn to_pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// What finds the body of a function whose returns are hooked.
fn to_resume() -> *mut c_void {
    (entry_points::twinbpf_hook_resume as *mut ()).cast()
}

fn list(callbacks: &[&Callback], needs: u32) -> List {
    let any = |needs: fn(&Callback) -> bool| callbacks.iter().any(|callback| needs(callback));
    let vectors = if any(|callback| callback.vectors) { Needs::VECTORS } else { 0 };
    let floats = if any(|callback| callback.floats) { Needs::FLOATS } else { 0 };
    let has_fast_path = callbacks.first().is_some_and(|callback| callback.fast_path.is_some());
    let fast_path = if has_fast_path { Needs::FAST_PATH } else { 0 };
    let link = |callback: &&Callback| {
        let Callback { entry, data, fast_path, .. } = callback;
        Link { entry: Some(*entry), data: *data, fast_path: *fast_path }
    };
    let links: Vec<Link> = callbacks.iter().map(link).collect();
    List::new(needs | vectors | floats | fast_path, &links)
}
