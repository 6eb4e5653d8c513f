//! Serialisation: from values to bytes.

use ciborium_ll::{Encoder, Header, simple};
use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::unfit::UnfitValue;
use super::{BIG_NEGATIVE, BIG_POSITIVE, BREAK, F32, MOST_LEVELS, NULL, SOME_BYTES, decode};

/// The longest header: a byte, and a number of 64 bits.
const MOST_HEAD_BYTES: usize = 9;

type Written = Result<(), UnfitValue>;

/// The bytes written so far.
#[derive(Default)]
pub(super) struct CborWriter {
    bytes: Vec<u8>,
    /// The nesting depth of the value that is being written.
    levels: usize,
}

impl CborWriter {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn head(&mut self, header: Header) -> Written {
        let mut head = [0; MOST_HEAD_BYTES];
        let mut room = &mut head[..];
        let full = |_| UnfitValue::new("unfit", "its header is too long");
        Encoder::from(&mut room).push(header).map_err(full)?;
        let bytes = MOST_HEAD_BYTES - room.len();
        self.bytes.extend_from_slice(&head[..bytes]);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Written {
        self.head(Header::Text(Some(text.len())))?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// An integer of more than 64 bits.
    fn big(&mut self, tag: u64, magnitude: u128) -> Written {
        let bytes = magnitude.to_be_bytes();
        let bytes = &bytes[magnitude.leading_zeros() as usize / 8..];
        self.head(Header::Tag(tag))?;
        self.serialize_bytes(bytes)
    }

    fn enter(&mut self, levels: usize) -> Written {
        self.levels += levels;
        if self.levels <= MOST_LEVELS {
            return Ok(());
        }
        Err(UnfitValue::new(
            format!("{} levels deep", self.levels),
            format!("at most {MOST_LEVELS} levels are allowed"),
        ))
    }

    /// Begins a sequence or a map, `levels` below the value around it.
    fn open(
        &mut self,
        header: fn(Option<usize>) -> Header,
        len: Option<usize>,
        levels: usize,
    ) -> Result<Open<'_>, UnfitValue> {
        self.enter(levels)?;
        let start = self.bytes.len();
        self.head(header(len))?;
        let (head, variant) = (start..self.bytes.len(), None);
        Ok(Open { writer: self, header, head, len, count: 0, key: 0..0, levels, variant })
    }

    /// Begins the content of a variant: a map of one name.
    fn variant(&mut self, name: &'static str) -> Written {
        self.head(Header::Map(Some(1)))?;
        self.text(name)
    }
}

/// A sequence or a map that is being written.
pub(super) struct Open<'a> {
    writer: &'a mut CborWriter,
    header: fn(Option<usize>) -> Header,
    /// The position of its header.
    head: std::ops::Range<usize>,
    /// The length in the header.
    len: Option<usize>,
    /// Elements so far.
    count: usize,
    /// The position of the key of the current map entry.
    key: std::ops::Range<usize>,
    levels: usize,
    /// The variant to which this content belongs.
    variant: Option<&'static str>,
}

impl Open<'_> {
    /// Writes an element or the value of a key.
    fn put<T: Serialize + ?Sized>(&mut self, value: &T, part: impl FnOnce(&Self) -> String) -> Written {
        let outcome = value.serialize(&mut *self.writer);
        let variant = self.variant.map(|name| format!(".{name}")).unwrap_or_default();
        outcome.map_err(|unfit| unfit.inside(|| variant + &part(self)))?;
        self.count += 1;
        Ok(())
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.put(value, |open| format!("[{}]", open.count))
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        self.writer.text(name)?;
        self.put(value, |_| format!(".{name}"))
    }

    /// The place of an entry: its key if the key is text, else its number.
    fn entry(&self) -> String {
        match decode::<String>(&self.writer.bytes[self.key.clone()]) {
            Ok(key) => format!("[{key:?}]"),
            Err(_) => format!("[entry {}]", self.count),
        }
    }

    fn close(self) -> Written {
        let writer = self.writer;
        writer.levels -= self.levels;
        match self.len {
            Some(len) if len == self.count => return Ok(()),
            // The length that the value reported was a guess.
            Some(_) => {
                let after = writer.bytes.split_off(self.head.end);
                writer.bytes.truncate(self.head.start);
                writer.head((self.header)(None))?;
                writer.bytes.extend(after);
            }
            None => {}
        }
        writer.bytes.push(BREAK);
        Ok(())
    }
}

impl<'a> Serializer for &'a mut CborWriter {
    type Ok = ();
    type Error = UnfitValue;
    type SerializeSeq = Open<'a>;
    type SerializeTuple = Open<'a>;
    type SerializeTupleStruct = Open<'a>;
    type SerializeTupleVariant = Open<'a>;
    type SerializeMap = Open<'a>;
    type SerializeStruct = Open<'a>;
    type SerializeStructVariant = Open<'a>;

    fn serialize_bool(self, value: bool) -> Written {
        self.head(Header::Simple(if value { simple::TRUE } else { simple::FALSE }))
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Written {
        let bits = value.cast_unsigned();
        self.head(if value < 0 { Header::Negative(!bits) } else { Header::Positive(bits) })
    }

    fn serialize_i128(self, value: i128) -> Written {
        match (u128::try_from(value), u64::try_from(!value)) {
            (Ok(value), _) => self.serialize_u128(value),
            (Err(_), Ok(bits)) => self.head(Header::Negative(bits)),
            (Err(_), Err(_)) => self.big(BIG_NEGATIVE, (!value).cast_unsigned()),
        }
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Written {
        self.head(Header::Positive(value))
    }

    fn serialize_u128(self, value: u128) -> Written {
        match u64::try_from(value) {
            Ok(value) => self.serialize_u64(value),
            Err(_) => self.big(BIG_POSITIVE, value),
        }
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.bytes.push(F32);
        self.bytes.extend(value.to_bits().to_be_bytes());
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Written {
        self.bytes.push(F32 + 1);
        self.bytes.extend(value.to_bits().to_be_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Written {
        self.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        self.head(Header::Bytes(Some(value.len())))?;
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    fn serialize_none(self) -> Written {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        self.enter(1)?;
        let start = self.bytes.len();
        value.serialize(&mut *self)?;
        self.levels -= 1;
        let content = &self.bytes[start..];
        if content.starts_with(&[NULL]) || content.starts_with(&SOME_BYTES) {
            self.bytes.splice(start..start, SOME_BYTES);
        }
        Ok(())
    }

    fn serialize_unit(self) -> Written {
        self.bytes.push(NULL);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Written {
        self.text(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Written {
        self.enter(1)?;
        self.variant(name)?;
        value.serialize(&mut *self).map_err(|unfit| unfit.inside(|| format!(".{name}")))?;
        self.levels -= 1;
        Ok(())
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Open<'a>, UnfitValue> {
        self.open(Header::Array, len, 1)
    }

    fn serialize_tuple(self, len: usize) -> Result<Open<'a>, UnfitValue> {
        self.open(Header::Array, Some(len), 1)
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Open<'a>, UnfitValue> {
        self.open(Header::Array, Some(len), 1)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<Open<'a>, UnfitValue> {
        self.variant(name)?;
        Ok(Open { variant: Some(name), ..self.open(Header::Array, Some(len), 2)? })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Open<'a>, UnfitValue> {
        self.open(Header::Map, len, 1)
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Open<'a>, UnfitValue> {
        self.open(Header::Map, Some(len), 1)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        len: usize,
    ) -> Result<Open<'a>, UnfitValue> {
        self.variant(name)?;
        Ok(Open { variant: Some(name), ..self.open(Header::Map, Some(len), 2)? })
    }
}

/// Sequences by each of serde's names.
macro_rules! elements {
    ($($of:ident::$put:ident),*) => {$(
        impl $of for Open<'_> {
            type Ok = ();
            type Error = UnfitValue;

            fn $put<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
                self.element(value)
            }

            fn end(self) -> Written {
                self.close()
            }
        }
    )*};
}

elements!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

/// Structs by each of serde's names.
macro_rules! fields {
    ($($of:ident),*) => {$(
        impl $of for Open<'_> {
            type Ok = ();
            type Error = UnfitValue;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
                self.field(name, value)
            }

            fn end(self) -> Written {
                self.close()
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Open<'_> {
    type Ok = ();
    type Error = UnfitValue;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        let start = self.writer.bytes.len();
        let outcome = key.serialize(&mut *self.writer);
        outcome.map_err(|unfit| unfit.inside(|| format!("[key {}]", self.count)))?;
        self.key = start..self.writer.bytes.len();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.put(value, Self::entry)
    }

    fn end(self) -> Written {
        self.close()
    }
}
