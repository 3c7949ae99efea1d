//! Closures as host functions: the Rust signature is the declaration.

use std::marker::PhantomData;
use std::sync::Arc;

use super::arg::{Args, HostArg, MapRef};
use super::caller::Caller;
use super::ret::HostRet;
use super::thunk::{self, Callable, Entry};
use super::{Activation, HostFn};
use crate::map::MapOps;
use twinbpf_isa::program::Signature;

/// A closure or function that can become a [`HostFn`]: up to five [`HostArg`]s, a [`HostRet`], and optionally
/// a leading [`Caller`]. `Params` only distinguishes the implementations.
///
/// ```
/// use twinbpf_vm::host::{Caller, HostFn, IntoHostFn};
///
/// fn named<Params>(name: &str, function: impl IntoHostFn<u64, Params>) -> HostFn {
///     function.into_host_fn(name.into())
/// }
/// let add = named("add", |a: u32, b: u32| a.wrapping_add(b));
/// let count = named("count", |mut caller: Caller<'_, u64>| *caller.data_mut() += 1);
/// assert_eq!((add.signature().params.len(), count.signature().params.len()), (2, 0));
/// ```
pub trait IntoHostFn<T, Params>: Send + Sync + 'static {
    /// The host function of this name.
    fn into_host_fn(self, name: Arc<str>) -> HostFn;
}

/// Marks, in the `Params` of [`IntoHostFn`], closures that take a [`Caller`].
#[derive(Debug)]
pub struct WithCaller<T>(PhantomData<fn(T)>);

/// The signature of parameters and a result, and whether the last parameter is C's `...`.
const fn variadic(params: &[bool]) -> bool {
    let mut index = 0;
    while index < params.len() {
        assert!(!params[index] || index + 1 == params.len(), "VarArgs is the last parameter");
        index += 1;
    }
    index > 0 && params[index - 1]
}

fn signature<R: HostRet>(params: &[(twinbpf_isa::program::ValType, bool)], variadic: bool) -> Signature {
    let params = params.iter().filter(|param| !param.1).map(|param| param.0).collect();
    Signature { params, variadic, result: R::TYPE }
}

/// The entry takes as many registers as the type has parameters, and all of them for C's `...`.
fn host_fn<B: Callable>(name: Arc<str>, signature: Signature, body: B, own: fn(&Arc<B>) -> Entry) -> HostFn {
    let body = Arc::new(body);
    let entry = if signature.variadic { thunk::entry5(&body) } else { own(&body) };
    HostFn::with_entry(name, signature, body, entry)
}

/// A function of a map: a [`Caller`], the map, and up to four [`HostArg`]s.
pub(crate) trait IntoMapFn<Params>: Copy + Send + Sync + 'static {
    /// The host function of this name.
    fn into_map_fn(self, name: Arc<str>) -> HostFn;
}

macro_rules! into_map_fn {
    ($entry:ident $bound:ident $($A:ident $a:ident),*) => {
        impl<F, R, $($A),*> IntoMapFn<($($A,)*)> for F
        where
            F: Fn(Caller<'_, ()>, &Arc<dyn MapOps>, $($A),*) -> R + Copy + Send + Sync + 'static,
            R: HostRet,
            $($A: HostArg,)*
        {
            fn into_map_fn(self, name: Arc<str>) -> HostFn {
                let signature = signature::<R>(&[(MapRef::TYPE, false), $(($A::TYPE, $A::VARIADIC)),*], false);
                let label = Arc::clone(&name);
                let body = move |activation: &mut dyn Activation, regs: &[u64; 5]| {
                    let mut args = Args::new(activation, &label, regs);
                    let map = MapRef::take(&mut args)?;
                    $(let $a = $A::take(&mut args)?;)*
                    self(Caller::new(activation, &label), map.map(), $($a),*).into_r0()
                };
                let (label, types) = (Arc::clone(&name), signature.clone());
                let bind = move |map: Arc<dyn MapOps>| {
                    let name = Arc::clone(&label);
                    let body = move |activation: &mut dyn Activation, regs: &[u64; 5]| {
                        let mut args = Args::after_map(activation, &name, regs);
                        $(let $a = $A::take(&mut args)?;)*
                        self(Caller::new(activation, &name), &map, $($a),*).into_r0()
                    };
                    let signature = Signature { params: types.params[1..].to_vec(), ..types.clone() };
                    host_fn(Arc::clone(&label), signature, body, thunk::$bound)
                };
                HostFn { bind: Some(Arc::new(bind)), ..host_fn(name, signature, body, thunk::$entry) }
            }
        }
    };
}

into_map_fn!(entry2 entry1 A2 a2);
into_map_fn!(entry3 entry2 A2 a2, A3 a3);
into_map_fn!(entry4 entry3 A2 a2, A3 a3, A4 a4);
into_map_fn!(entry5 entry4 A2 a2, A3 a3, A4 a4, A5 a5);

macro_rules! into_host_fn {
    ($entry:ident $($A:ident $a:ident),*) => {
        impl<T, F, R, $($A),*> IntoHostFn<T, ($($A,)*)> for F
        where
            F: Fn($($A),*) -> R + Send + Sync + 'static,
            R: HostRet,
            $($A: HostArg,)*
        {
            fn into_host_fn(self, name: Arc<str>) -> HostFn {
                let variadic = const { variadic(&[$($A::VARIADIC),*]) };
                let signature = signature::<R>(&[$(($A::TYPE, $A::VARIADIC)),*], variadic);
                let label = Arc::clone(&name);
                #[allow(unused_mut, unused_variables, reason = "functions without parameters")]
                let body = move |activation: &mut dyn Activation, regs: &[u64; 5]| {
                    let mut args = Args::new(activation, &label, regs);
                    $(let $a = $A::take(&mut args)?;)*
                    self($($a),*).into_r0()
                };
                host_fn(name, signature, body, thunk::$entry)
            }
        }

        impl<T: 'static, F, R, $($A),*> IntoHostFn<T, (WithCaller<T>, $($A,)*)> for F
        where
            F: Fn(Caller<'_, T>, $($A),*) -> R + Send + Sync + 'static,
            R: HostRet,
            $($A: HostArg,)*
        {
            fn into_host_fn(self, name: Arc<str>) -> HostFn {
                let variadic = const { variadic(&[$($A::VARIADIC),*]) };
                let signature = signature::<R>(&[$(($A::TYPE, $A::VARIADIC)),*], variadic);
                let label = Arc::clone(&name);
                #[allow(unused_mut, unused_variables, reason = "functions without parameters")]
                let body = move |activation: &mut dyn Activation, regs: &[u64; 5]| {
                    let mut args = Args::new(activation, &label, regs);
                    $(let $a = $A::take(&mut args)?;)*
                    self(Caller::new(activation, &label), $($a),*).into_r0()
                };
                host_fn(name, signature, body, thunk::$entry)
            }
        }
    };
}

into_host_fn!(entry0);
into_host_fn!(entry1 A1 a1);
into_host_fn!(entry2 A1 a1, A2 a2);
into_host_fn!(entry3 A1 a1, A2 a2, A3 a3);
into_host_fn!(entry4 A1 a1, A2 a2, A3 a3, A4 a4);
into_host_fn!(entry5 A1 a1, A2 a2, A3 a3, A4 a4, A5 a5);
