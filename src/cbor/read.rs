//! Deserialisation: from bytes to values.

use std::borrow::Cow;

use ciborium_ll::{Decoder, Header, simple};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};

use super::unfit::UnfitValue;
use super::{BIG_NEGATIVE, BIG_POSITIVE, BREAK, F32, MOST_LEVELS, NULL, SOME, UNDEFINED};

/// The remaining bytes.
pub(super) struct CborReader<'de> {
    rest: &'de [u8],
    levels: usize,
}

impl<'de> CborReader<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Self { rest: bytes, levels: 0 }
    }

    /// Refuses bytes after the value.
    pub(super) fn finish(&self) -> Result<(), UnfitValue> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(UnfitValue::custom(format!("{more} bytes follow the value"))),
        }
    }

    fn head(&mut self) -> Result<Header, UnfitValue> {
        Decoder::from(&mut self.rest).pull().map_err(|_| UnfitValue::custom("the bytes end early or are not CBOR"))
    }

    /// The next header, without consuming it.
    fn peek(&self) -> Result<Header, UnfitValue> {
        Self { ..*self }.head()
    }

    fn next_is(&self, byte: u8) -> bool {
        self.rest.first() == Some(&byte)
    }

    fn take(&mut self, bytes: usize) -> Result<&'de [u8], UnfitValue> {
        let (taken, rest) =
            self.rest.split_at_checked(bytes).ok_or_else(|| UnfitValue::custom("the bytes end early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes or text of this length, or in pieces.
    fn string(&mut self, len: Option<usize>, piece: fn(Header) -> Option<usize>) -> Result<Cow<'de, [u8]>, UnfitValue> {
        if let Some(len) = len {
            return self.take(len).map(Cow::Borrowed);
        }
        let mut all = Vec::new();
        loop {
            match self.head()? {
                Header::Break => return Ok(all.into()),
                head => {
                    let len = piece(head).ok_or_else(|| UnfitValue::custom("a piece of a string is not a string"))?;
                    all.extend_from_slice(self.take(len)?);
                }
            }
        }
    }

    fn bytes(&mut self, len: Option<usize>) -> Result<Cow<'de, [u8]>, UnfitValue> {
        self.string(len, |head| if let Header::Bytes(len) = head { len } else { None })
    }

    fn text(&mut self, len: Option<usize>) -> Result<Cow<'de, str>, UnfitValue> {
        match self.string(len, |head| if let Header::Text(len) = head { len } else { None })? {
            Cow::Borrowed(bytes) => str::from_utf8(bytes).map(Cow::Borrowed).map_err(UnfitValue::custom),
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(UnfitValue::custom),
        }
    }

    /// The bytes of an integer beyond 64 bits.
    fn big(&mut self) -> Result<u128, UnfitValue> {
        let Header::Bytes(len) = self.head()? else { return Err(UnfitValue::custom("a large integer without bytes")) };
        let bytes = self.bytes(len)?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        match bytes.len() - zeros {
            0..=16 => Ok(bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))),
            more => Err(UnfitValue::custom(format!("an integer of {more} bytes"))),
        }
    }

    fn inside<T>(
        &mut self,
        levels: usize,
        read: impl FnOnce(&mut Self) -> Result<T, UnfitValue>,
    ) -> Result<T, UnfitValue> {
        if self.levels + levels > MOST_LEVELS {
            return Err(UnfitValue::custom(format!("it has more than {MOST_LEVELS} levels")));
        }
        self.levels += levels;
        let outcome = read(self);
        self.levels -= levels;
        outcome
    }

    /// Reads the entries of an array or a map, all of them.
    fn entries<T>(
        &mut self,
        left: Option<usize>,
        read: impl FnOnce(&mut Entries<'_, 'de>) -> Result<T, UnfitValue>,
    ) -> Result<T, UnfitValue> {
        self.inside(1, |reader| {
            let mut entries = Entries { reader, left };
            let value = read(&mut entries)?;
            match entries.is_over() {
                true if left.is_none() => entries.reader.take(1).map(|_| value),
                true => Ok(value),
                false => Err(UnfitValue::custom("a sequence or a map holds more than expected")),
            }
        })
    }
}

impl<'de> Deserializer<'de> for &mut CborReader<'de> {
    type Error = UnfitValue;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UnfitValue> {
        // Reads the bits directly: a conversion to f64 could change those of a NaN.
        if let Some((&F32, rest)) = self.rest.split_first()
            && let Some((bits, rest)) = rest.split_first_chunk()
        {
            self.rest = rest;
            return visitor.visit_f32(f32::from_bits(u32::from_be_bytes(*bits)));
        }
        loop {
            return match self.head()? {
                Header::Positive(value) => visitor.visit_u64(value),
                Header::Negative(bits) => match i64::try_from(bits) {
                    Ok(bits) => visitor.visit_i64(!bits),
                    Err(_) => visitor.visit_i128(!i128::from(bits)),
                },
                Header::Float(value) => visitor.visit_f64(value),
                Header::Simple(simple::FALSE) => visitor.visit_bool(false),
                Header::Simple(simple::TRUE) => visitor.visit_bool(true),
                Header::Simple(simple::NULL | simple::UNDEFINED) => visitor.visit_unit(),
                Header::Bytes(len) => match self.bytes(len)? {
                    Cow::Borrowed(bytes) => visitor.visit_borrowed_bytes(bytes),
                    Cow::Owned(bytes) => visitor.visit_byte_buf(bytes),
                },
                Header::Text(len) => match self.text(len)? {
                    Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                    Cow::Owned(text) => visitor.visit_string(text),
                },
                Header::Array(len) => self.entries(len, |entries| visitor.visit_seq(entries)),
                Header::Map(len) => self.entries(len, |entries| visitor.visit_map(entries)),
                Header::Tag(SOME) => self.inside(1, |reader| visitor.visit_some(reader)),
                Header::Tag(BIG_POSITIVE) => visitor.visit_u128(self.big()?),
                Header::Tag(BIG_NEGATIVE) => match i128::try_from(self.big()?) {
                    Ok(bits) => visitor.visit_i128(!bits),
                    Err(_) => Err(UnfitValue::custom("a negative integer of more than 128 bits")),
                },
                // Serde cannot represent the information of other tags.
                Header::Tag(_) => continue,
                Header::Simple(other) => Err(UnfitValue::custom(format!("a simple value {other}"))),
                Header::Break => Err(UnfitValue::custom("an end without a beginning")),
            };
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, UnfitValue> {
        if self.next_is(NULL) || self.next_is(UNDEFINED) {
            self.take(1)?;
            return visitor.visit_none();
        }
        if self.peek()? == Header::Tag(SOME) {
            self.head()?;
        }
        self.inside(1, |reader| visitor.visit_some(reader))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, UnfitValue> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, UnfitValue> {
        match self.peek()? {
            Header::Text(_) => visitor.visit_enum(Variant { reader: self, content: false }),
            Header::Map(Some(1)) => {
                self.head()?;
                self.inside(1, |reader| visitor.visit_enum(Variant { reader, content: true }))
            }
            _ => Err(UnfitValue::custom("a variant is its name, or a map of its name to its content")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The remaining entries of an array or a map.
struct Entries<'a, 'de> {
    reader: &'a mut CborReader<'de>,
    /// `None`: until the end marker.
    left: Option<usize>,
}

impl<'de> Entries<'_, 'de> {
    fn is_over(&self) -> bool {
        self.left.map_or_else(|| self.reader.next_is(BREAK), |left| left == 0)
    }

    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, UnfitValue> {
        if self.is_over() {
            return Ok(None);
        }
        self.left = self.left.map(|left| left - 1);
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> SeqAccess<'de> for &mut Entries<'_, 'de> {
    type Error = UnfitValue;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, UnfitValue> {
        self.next(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.left
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'_, 'de> {
    type Error = UnfitValue;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, UnfitValue> {
        self.next(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, UnfitValue> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        self.left
    }
}

/// A variant's name and its content.
struct Variant<'a, 'de> {
    reader: &'a mut CborReader<'de>,
    content: bool,
}

impl<'de> Variant<'_, 'de> {
    fn content(self, expected: &str) -> Result<Self, UnfitValue> {
        if self.content { Ok(self) } else { Err(UnfitValue::invalid_type(Unexpected::UnitVariant, &expected)) }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = UnfitValue;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), UnfitValue> {
        Ok((seed.deserialize(&mut *self.reader)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = UnfitValue;

    fn unit_variant(self) -> Result<(), UnfitValue> {
        if self.content { serde::Deserialize::deserialize(self.reader) } else { Ok(()) }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, UnfitValue> {
        seed.deserialize(self.content("a variant with a value")?.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, UnfitValue> {
        self.content("a variant of a tuple")?.reader.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, UnfitValue> {
        self.content("a variant of a struct")?.reader.deserialize_any(visitor)
    }
}
