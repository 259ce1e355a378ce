//! AES-256 (FIPS 197): the key schedule, and its rounds on one block or on vectors of four.

use std::arch::x86_64::*;

use super::memory;
use crate::KEY_LEN;

/// The number of the last round.
pub(super) const LAST: usize = 14;

/// The round keys.
pub(super) type Schedule = [__m128i; LAST + 1];

/// The key expansion (FIPS 197, section 5.2).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn expand(key: &[u8; KEY_LEN]) -> Schedule {
    let (low, high) = key.split_at(KEY_LEN / 2);
    let (mut low, mut high) = (memory::part_of_block(low), memory::part_of_block(high));
    let mut schedule = [_mm_setzero_si128(); LAST + 1];
    (schedule[0], schedule[1]) = (low, high);
    macro_rules! next {
        ($at:literal, $constant:literal) => {
            low = next(
                low,
                _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(high)),
            );
            schedule[$at] = low;
        };
        ($at:literal, $constant:literal, $then:literal) => {
            next!($at, $constant);
            high = next(
                high,
                _mm_shuffle_epi32::<0xaa>(_mm_aeskeygenassist_si128::<0>(low)),
            );
            schedule[$then] = high;
        };
    }
    next!(2, 0x01, 3);
    next!(4, 0x02, 5);
    next!(6, 0x04, 7);
    next!(8, 0x08, 9);
    next!(10, 0x10, 11);
    next!(12, 0x20, 13);
    next!(14, 0x40);
    schedule
}

/// Four words of the schedule from the four before: each is the XOR of those up to it, and `word`
/// is XORed to all.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn next(words: __m128i, word: __m128i) -> __m128i {
    let words = _mm_xor_si128(words, _mm_slli_si128::<4>(words));
    let words = _mm_xor_si128(words, _mm_slli_si128::<8>(words));
    _mm_xor_si128(words, word)
}

/// Encrypts one block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn encrypt(schedule: &Schedule, block: __m128i) -> __m128i {
    let mut block = _mm_xor_si128(block, schedule[0]);
    for key in &schedule[1..LAST] {
        block = _mm_aesenc_si128(block, *key);
    }
    _mm_aesenclast_si128(block, schedule[LAST])
}

/// Four counter blocks with their last words in network byte order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn counter_blocks(counters: __m512i) -> __m512i {
    let order = _mm_set_epi64x(0x0c0d_0e0f_0b0a_0908, 0x0706_0504_0302_0100);
    _mm512_shuffle_epi8(counters, _mm512_broadcast_i32x4(order))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn first_round(schedule: &Schedule, blocks: __m512i) -> __m512i {
    _mm512_xor_si512(blocks, _mm512_broadcast_i32x4(schedule[0]))
}

/// A round between the first and the last.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn round(schedule: &Schedule, round: usize, blocks: &mut [__m512i]) {
    let key = _mm512_broadcast_i32x4(schedule[round]);
    for block in blocks {
        *block = _mm512_aesenc_epi128(*block, key);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn last_round(schedule: &Schedule, blocks: &mut [__m512i]) {
    let key = _mm512_broadcast_i32x4(schedule[LAST]);
    for block in blocks {
        *block = _mm512_aesenclast_epi128(*block, key);
    }
}
