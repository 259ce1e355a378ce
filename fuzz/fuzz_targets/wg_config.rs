#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_fuzz::wg_config(data));
