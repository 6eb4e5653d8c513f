//! Blocking copies between memory and the host: the same methods for every type of memory.

/// The copies of a type whose method `$own` returns this rank's elements as a [`Ref`](crate::Ref). `$after` documents a copy
/// after a collective that gave up. `$confirm` checks the results of finished calls.
macro_rules! host_copies {
    ($type:ident <$($life:lifetime,)? T>, $own:ident, $after:literal $(, $confirm:ident)?) => {
        impl<$($life,)? T: $crate::types::Element> $type<$($life,)? T> {
            /// Copies `values` into this rank's elements, after earlier work of `stream`. Blocks until the copy is done.
            ///
            /// # Errors
            /// The errors of [`Ref::write`](crate::Ref::write).
            pub fn write(&self, values: &[T], stream: &$crate::stream::Stream) -> $crate::error::Result<()> {
                self.$own().write(values, stream)
            }

            /// Copies this rank's elements to the host, after earlier work of `stream`. Blocks until the copy is done.
            ///
            #[doc = $after]
            ///
            /// # Errors
            /// The errors of [`Ref::read`](crate::Ref::read).
            pub fn read(&self, stream: &$crate::stream::Stream) -> $crate::error::Result<Vec<T>> {
                let values = self.$own().read(stream)?;
                $(self.$confirm()?;)?
                Ok(values)
            }

            /// Copies this rank's elements into `values`, memory of the host, after earlier work of `stream`. Blocks until
            /// the copy is done. Like [`read`](Self::read), without an allocation.
            ///
            /// # Errors
            /// The errors of [`read`](Self::read); [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the
            /// length differs.
            pub fn read_into(&self, values: &mut [T], stream: &$crate::stream::Stream) -> $crate::error::Result<()> {
                self.$own().read_into(values, stream)?;
                $(self.$confirm()?;)?
                Ok(())
            }
        }
    };
}

/// The copies of memory that belongs to no group.
macro_rules! plain_copies {
    ($type:ident <$($life:lifetime,)? T>, $own:ident) => {
        $crate::memory::host_copies! {
            $type<$($life,)? T>, $own,
            "A read reports no failed collective: after a collective that gave up, the copy contains old values. Call \
            [`Communicator::synchronize`](crate::Communicator::synchronize) first."
        }
    };
}

/// The copies of memory of a group.
macro_rules! group_copies {
    ($type:ident <$($life:lifetime,)? T>, $own:ident, $confirm:ident) => {
        $crate::memory::host_copies! {
            $type<$($life,)? T>, $own,
            "After a collective that gave up, the elements may be old, and the result is the group's error; if the ranks made \
            different calls, it is [`Error::Mismatch`](crate::Error::Mismatch).",
            $confirm
        }
    };
}

pub(crate) use {group_copies, host_copies, plain_copies};
