//! Shapes: what a Rust type has at which offset, to be compared with BTF.

use std::any::type_name;

use zerocopy::byteorder::{BigEndian, I16, I32, I64, LittleEndian, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A Rust type of keys, values and globals. Values are copied, so that any bytes must be one of its values and it must
/// have no padding: zerocopy's traits say so. [`BtfType::shape`] is compared with the type that the object's BTF has.
///
/// Integers of 1 to 8 bytes have it, floats, zerocopy's integers of either byte order, and arrays of such types. A struct
/// gets it with [`btf_type!`](crate::btf_type), or with an empty `impl`, of which only the size is compared.
///
/// ```
/// use twinbpf::BtfType;
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// /// A value that is passed on as it is.
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Blob([u8; 24]);
/// impl BtfType for Blob {}
/// ```
pub trait BtfType: FromBytes + IntoBytes + Immutable {
    /// What it has where.
    fn shape() -> Shape
    where
        Self: Sized,
    {
        Shape::opaque::<Self>()
    }
}

/// What a type has at which offset, see [`BtfType::shape`].
///
/// ```
/// use twinbpf::{BtfType, Shape};
///
/// assert_eq!(u32::shape(), Shape::unsigned::<u32>());
/// assert_ne!(u32::shape(), i32::shape());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The type as messages call it.
    pub(super) name: &'static str,
    /// Bytes.
    pub(super) size: usize,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unsigned,
    Signed,
    Float,
    Array { element: Box<Shape>, len: usize },
    Struct(Vec<Field>),
    Opaque,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) off: usize,
    pub(super) shape: Shape,
}

impl Shape {
    fn new<T>(kind: Kind) -> Shape {
        // Types of the embedder's without the path of their module.
        let name = type_name::<T>();
        let plain = !name.contains(['<', '[', '(']);
        let name = if plain { name.rsplit("::").next().unwrap_or(name) } else { name };
        Shape { name, size: size_of::<T>(), kind }
    }

    /// An unsigned integer, in either byte order; a C pointer, enum or `bool` too.
    pub fn unsigned<T>() -> Shape {
        Shape::new::<T>(Kind::Unsigned)
    }

    /// A signed integer, in either byte order.
    pub fn signed<T>() -> Shape {
        Shape::new::<T>(Kind::Signed)
    }

    /// A type that matches any other of its size.
    pub fn opaque<T>() -> Shape {
        Shape::new::<T>(Kind::Opaque)
    }

    /// A struct of these fields: name, byte offset and shape of each. What no field covers is padding.
    pub fn record<T>(fields: impl IntoIterator<Item = (&'static str, usize, Shape)>) -> Shape {
        let fields = fields.into_iter().map(|(name, off, shape)| Field { name, off, shape });
        Shape::new::<T>(Kind::Struct(fields.collect()))
    }

    /// The shape of the type of a field, which the function reads.
    #[doc(hidden)]
    pub fn of_field<S, F: BtfType>(_: fn(S) -> F) -> Shape {
        F::shape()
    }
}

macro_rules! scalars {
    ($kind:ident: $($Type:ty),*) => {$(
        impl BtfType for $Type {
            fn shape() -> Shape {
                Shape::new::<$Type>(Kind::$kind)
            }
        }
    )*};
}
scalars!(Unsigned: u8, u16, u32, u64);
scalars!(Signed: i8, i16, i32, i64);
scalars!(Float: f32, f64);
scalars!(Unsigned: U16<BigEndian>, U32<BigEndian>, U64<BigEndian>, U16<LittleEndian>, U32<LittleEndian>, U64<LittleEndian>);
scalars!(Signed: I16<BigEndian>, I32<BigEndian>, I64<BigEndian>, I16<LittleEndian>, I32<LittleEndian>, I64<LittleEndian>);

impl<T: BtfType, const N: usize> BtfType for [T; N] {
    fn shape() -> Shape {
        Shape::new::<[T; N]>(Kind::Array { element: Box::new(T::shape()), len: N })
    }
}

/// Implements [`BtfType`] for a `#[repr(C)]` struct with zerocopy's traits: names all of its fields, whose offsets, sizes
/// and signs are then compared with BTF. Offsets decide, not names: but a field that C has under the same name must be
/// at the same place. What is padding in C must be a field in Rust, since zerocopy allows no padding.
///
/// ```
/// use zerocopy::byteorder::big_endian::{U16, U32};
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// /// `struct flow { __be32 source, target; __be16 port; __u8 protocol; }`
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Flow {
///     source: U32,
///     target: U32,
///     port: U16,
///     protocol: u8,
///     padding: u8,
/// }
/// twinbpf::btf_type!(Flow { source, target, port, protocol, padding });
/// ```
#[macro_export]
macro_rules! btf_type {
    ($Type:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::BtfType for $Type {
            fn shape() -> $crate::Shape {
                // Refuses a list that lacks a field.
                let _ = |$Type { $($field: _),+ }: $Type| {};
                $crate::Shape::record::<$Type>([$((
                    ::core::stringify!($field),
                    ::core::mem::offset_of!($Type, $field),
                    $crate::Shape::of_field::<$Type, _>(|value| value.$field),
                )),+])
            }
        }
    };
}
