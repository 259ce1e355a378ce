#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_node::broker::fuzz::broker(data));
