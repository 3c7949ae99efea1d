use super::rig::Rig;
use super::*;

fn nothing(name: &str) -> HostFn {
    HostFn::typed::<u32, _>(name, || 0u64)
}

#[test]
fn every_name_becomes_a_number() {
    let mut rig = Rig::with(
        "r1 = map_value(0, 8) ll
         r2 = func(callback) ll
         r3 = btf_id(0) ll
         call callback
         call extern(0)
         call extern(1)
         call 5
         call 12
         call 99
         exit
         callback: r0 = 0
         exit",
    );
    rig.host(nothing("host"));
    rig.externs.push(Target::Unresolved("weak".into()));
    rig.helpers.insert(5, nothing("bpf_ktime_get_ns"));
    let image = rig.image();
    let links = image.links();
    assert_eq!(links[0], Link::Value(rig.memory.addr() + 8));
    assert_eq!(links[2], Link::Value(image.function_address(0, 13).unwrap()));
    assert_eq!(links[4], Link::Value(image.host_address("host").unwrap()));
    assert_eq!(links[6], Link::Function(1));
    assert_eq!(links[7], Link::Host(0));
    assert!(matches!(links[8], Link::Trap(trap) if image.trap(trap).code() == TrapCode::Unresolved));
    assert_eq!(links[9], Link::Host(1));
    assert_eq!(links[10], Link::TailCall);
    assert!(matches!(links[11], Link::Trap(trap) if image.trap(trap).to_string().contains("(99)")));
    assert_eq!(links[12], Link::None);
}

#[test]
fn programs_share_one_pc_space() {
    let mut rig = Rig::with("call f\nexit\nf: r0 = 1\nexit");
    rig.program("second", "call g\nexit\ng: r0 = 2\nexit");
    let image = rig.image();
    assert_eq!((image.entry(0), image.entry(1)), (0, 4));
    assert_eq!(image.locate(6), (1, 2));
    assert_eq!(image.links()[4], Link::Function(3));
    assert_eq!(image.program_index("second"), Some(1));
    let location = image.location(6);
    assert_eq!((&*location.program, &*location.function, location.pc), ("second", "g", 2));
    assert_eq!(location.line.as_deref(), Some("t.c:2: line 2;"));
    assert_eq!(image.location(4).insn, "call pc+1 (g)");
}

#[test]
fn addresses_are_checked_by_subtraction() {
    let mut rig = Rig::with("call f\ncall extern(0)\nexit\nf: exit");
    rig.host(nothing("host")).labels.push((0, 2));
    let image = rig.image();
    let f = image.function_address(0, 3).unwrap();
    assert_eq!(image.callee(f), Some(Callee::Function(1)));
    assert_eq!(image.callee(image.host_address("host").unwrap()), Some(Callee::Host(0)));
    let label = image.function_address(0, 2).unwrap();
    assert_eq!((image.callee(label), image.label(label)), (None, Some(2)));
    assert_eq!(image.label(f), Some(3));
    for wrong in [0, f + 1, f + 8, label + 32, rig.memory.addr()] {
        assert_eq!((image.callee(wrong), image.label(wrong)), (None, None), "{wrong:#x}");
    }
    assert_eq!(image.function_address(0, 1), None);
    assert_eq!(image.function_address(0, 99), None);
    assert_eq!(image.function_address(1, 0), None);
}

#[test]
fn a_binding_without_a_target_is_an_error() {
    let program = twinbpf_isa::asm::parse("r1 = map_fd(0) ll\nexit").unwrap();
    let program = Program {
        object: "t.bpf.o".into(),
        name: "main".into(),
        section: "test".into(),
        insns: program,
        bindings: [(0, twinbpf_isa::program::Binding::Map(7))].into(),
        functions: vec![twinbpf_isa::program::Function { name: "main".into(), start: 0, signature: None }],
        lines: Vec::new(),
        stack_size: 512,
    };
    let valid = program.validate(&Default::default(), &|_| true).unwrap();
    let arena = Arena::new(1 << 20).unwrap();
    let resolve = Resolve { maps: &[], values: &[], externs: &[], helper: &|_| None, labels: &[], pointed: &[] };
    let error = Image::new(&arena, vec![valid], resolve).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.bpf.o: program main, insn 0: map 7 does not exist; link and resolve the same object"
    );
}
