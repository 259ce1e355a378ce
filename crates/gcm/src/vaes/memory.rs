//! Vectors from slices and back: the only loads and stores, each within the slice that is passed.
#![expect(unsafe_code, reason = "loads and stores of vectors take pointers")]

use std::arch::x86_64::*;

use super::VECTOR;

/// Loads a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn load(bytes: &[u8; VECTOR]) -> __m512i {
    // SAFETY: reads the 64 bytes of the array; no alignment is required.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn store(bytes: &mut [u8; VECTOR], vector: __m512i) {
    // SAFETY: writes the 64 bytes of the array; no alignment is required.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

/// Loads up to 64 bytes, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn load_part(bytes: &[u8]) -> __m512i {
    // SAFETY: reads only the bytes whose bit is set in the mask, which are those of the slice.
    unsafe { _mm512_maskz_loadu_epi8(mask(bytes), bytes.as_ptr().cast()) }
}

/// Writes as many bytes as the slice has, and returns the vector with all others zeroed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn store_part(bytes: &mut [u8], vector: __m512i) -> __m512i {
    let mask = mask(bytes);
    // SAFETY: writes only the bytes whose bit is set in the mask, which are those of the slice.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, vector) };
    _mm512_maskz_mov_epi8(mask, vector)
}

/// A bit for each byte, of up to 64.
#[inline(always)]
fn mask(bytes: &[u8]) -> u64 {
    u64::MAX
        .checked_shr((VECTOR - bytes.len().min(VECTOR)) as u32)
        .unwrap_or(0)
}

/// Loads up to 16 bytes, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn part_of_block(bytes: &[u8]) -> __m128i {
    if let Some(whole) = bytes.first_chunk() {
        return from_bytes(whole);
    }
    let mask = !(u16::MAX << bytes.len());
    // SAFETY: reads only the bytes whose bit is set in the mask, which are those of the slice.
    unsafe { _mm_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

/// Loads a block.
#[inline(always)]
pub(super) fn from_bytes(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: reads the 16 bytes of the array; no alignment is required. Every x86-64 has the
    // instruction.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// Stores a block.
#[inline(always)]
pub(super) fn to_bytes(block: __m128i) -> [u8; 16] {
    let mut bytes = [0; 16];
    // SAFETY: writes the 16 bytes of the array; no alignment is required. Every x86-64 has the
    // instruction.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), block) };
    bytes
}

/// Loads four blocks, from the one at `at` on.
///
/// # Panics
/// If there are fewer than four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn four(blocks: &[__m128i], at: usize) -> __m512i {
    let four: &[__m128i] = &blocks[at..at + 4];
    // SAFETY: reads the 64 bytes of these four; no alignment is required.
    unsafe { _mm512_loadu_si512(four.as_ptr().cast()) }
}
