//! From a type's name to a Rust type.

/// Runs `$body` with `$Type` as the Rust type of `$dtype`.
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $Type:ident => $body:expr) => {
        $crate::with_element!($dtype, $Type => $body;
            F32 f32, F64 f64, F16 symmetra::half::f16, BF16 symmetra::half::bf16, I32 i32, I64 i64, I8 i8, U8 u8, U32 u32, U64 u64,
            F8E4M3 symmetra::float8::F8E4M3, F8E5M2 symmetra::float8::F8E5M2)
    };
    ($dtype:expr, $Type:ident => $body:expr; $($name:ident $rust:ty),*) => {
        match $dtype {
            $(symmetra::Dtype::$name => {
                type $Type = $rust;
                $body
            })*
            other => Err($crate::failure::CommandFailure::failed(format!("this command knows nothing of {other}"))),
        }
    };
}
