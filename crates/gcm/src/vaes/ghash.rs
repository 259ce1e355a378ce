//! GHASH (SP 800-38D, section 6.4): a polynomial over GF(2^128) whose coefficients are the blocks, at the hash key.
//!
//! Blocks are byte-swapped, so that the processor's multiplication applies; powers of the hash key
//! are stored times x, which compensates the one bit by which a product of swapped operands is
//! shifted (Gueron and Kounavis, "Intel Carry-Less Multiplication Instruction", algorithm 5). A
//! product has 256 bits and is kept as three numbers that overlap by half, `low + middle x^64 +
//! high x^128`, so that many can be added before they are reduced once.

use std::arch::x86_64::*;

use zeroize::Zeroize;

use super::{GROUP, GROUP_LEN};

/// Number of stored powers: one for each block of a group, and one for the lengths behind the last.
const COUNT: usize = 4 * GROUP + 1;
/// Unused elements before them, so that the powers of a group begin at a cache line.
const FRONT: usize = 3;
/// Number of these elements.
const PLACES: usize = FRONT + COUNT;
/// Zeros behind them, so that four can be loaded even if fewer remain.
const PADDING: usize = 3;

/// The powers of the hash key, the highest first, each times x.
#[repr(align(64))]
pub(super) struct Powers([__m128i; PLACES + PADDING]);

impl Powers {
    /// The hash key itself.
    #[inline(always)]
    pub(super) fn first(&self) -> __m128i {
        self.0[PLACES - 1]
    }

    /// The powers of a whole group that is not the last, the highest first.
    #[inline(always)]
    pub(super) fn of_group(&self) -> &[__m128i] {
        &self.0[FRONT + 1..]
    }

    /// The powers of the last bytes, at most a group: one more than they have blocks, the highest
    /// first, that of the lengths last.
    #[inline(always)]
    pub(super) fn of_last(&self, bytes: usize) -> &[__m128i] {
        debug_assert!(bytes <= GROUP_LEN);
        &self.0[PLACES - 1 - bytes.div_ceil(16)..]
    }
}

impl Zeroize for Powers {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn powers(hash_key: __m128i) -> Powers {
    let first = times_x(hash_key);
    let mut powers = Powers([_mm_setzero_si128(); PLACES + PADDING]);
    let mut power = first;
    for place in powers.0[FRONT..PLACES].iter_mut().rev() {
        *place = power;
        power = multiply(power, first);
    }
    powers
}

/// The bytes of a block in the opposite order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn swap(block: __m128i) -> __m128i {
    _mm_shuffle_epi8(block, _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f))
}

/// Like [`swap`], for four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn swap4(blocks: __m512i) -> __m512i {
    let order = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    _mm512_shuffle_epi8(blocks, _mm512_broadcast_i32x4(order))
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn times_x(block: __m128i) -> __m128i {
    let carries = _mm_srli_epi64::<63>(block);
    let shifted = _mm_or_si128(_mm_slli_epi64::<1>(block), _mm_slli_si128::<8>(carries));
    // All ones if the highest bit is shifted out.
    let out = _mm_srai_epi32::<31>(_mm_shuffle_epi32::<0xff>(block));
    _mm_xor_si128(shifted, _mm_and_si128(out, _mm_set_epi64x(POLYNOMIAL, 1)))
}

/// The upper half of x^128 + x^127 + x^126 + x^121 + 1, the field's polynomial with its bits
/// reversed.
const POLYNOMIAL: i64 = 0xc200_0000_0000_0000_u64 as i64;

/// Returns a block times a power, reduced.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
pub(super) fn multiply(block: __m128i, power: __m128i) -> __m128i {
    let [low, middle, high] = product(block, power);
    reduce(low, middle, high)
}

/// Returns a block times a power, not reduced: low, middle and high.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn product(block: __m128i, power: __m128i) -> [__m128i; 3] {
    let middle = _mm_xor_si128(
        _mm_clmulepi64_si128::<0x01>(block, power),
        _mm_clmulepi64_si128::<0x10>(block, power),
    );
    [
        _mm_clmulepi64_si128::<0x00>(block, power),
        middle,
        _mm_clmulepi64_si128::<0x11>(block, power),
    ]
}

/// Eliminates the lower half, 64 bits at a time, by adding multiples of the polynomial.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn reduce(low: __m128i, middle: __m128i, high: __m128i) -> __m128i {
    let polynomial = _mm_set_epi64x(0, POLYNOMIAL);
    let halves = |x| _mm_shuffle_epi32::<0b0100_1110>(x);
    let folded = _mm_clmulepi64_si128::<0x00>(low, polynomial);
    let middle = _mm_ternarylogic_epi64::<XOR>(middle, folded, halves(low));
    let folded = _mm_clmulepi64_si128::<0x00>(middle, polynomial);
    _mm_ternarylogic_epi64::<XOR>(high, folded, halves(middle))
}

/// The truth table of the XOR of three inputs.
const XOR: i32 = 0x96;

/// A sum of products that are not reduced: four sums side by side.
pub(super) struct Sum {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

impl Sum {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    pub(super) fn new() -> Self {
        let zero = _mm512_setzero_si512();
        Self {
            low: zero,
            middle: zero,
            high: zero,
        }
    }

    /// A block times a power.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    pub(super) fn of(block: __m128i, power: __m128i) -> Self {
        let [low, middle, high] = product(block, power);
        Self {
            low: _mm512_zextsi128_si512(low),
            middle: _mm512_zextsi128_si512(middle),
            high: _mm512_zextsi128_si512(high),
        }
    }

    /// Adds four blocks, each times its power.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    pub(super) fn add(&mut self, blocks: __m512i, powers: __m512i) {
        let low = _mm512_clmulepi64_epi128::<0x00>(blocks, powers);
        let high = _mm512_clmulepi64_epi128::<0x11>(blocks, powers);
        let one = _mm512_clmulepi64_epi128::<0x01>(blocks, powers);
        let other = _mm512_clmulepi64_epi128::<0x10>(blocks, powers);
        self.low = _mm512_xor_si512(self.low, low);
        self.high = _mm512_xor_si512(self.high, high);
        self.middle = _mm512_ternarylogic_epi64::<XOR>(self.middle, one, other);
    }

    /// Returns the sum of all products, reduced to one block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    pub(super) fn reduce(&self) -> __m128i {
        reduce(across(self.low), across(self.middle), across(self.high))
    }
}

/// Returns the sum of the four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn across(x: __m512i) -> __m128i {
    let two = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64::<1>(x));
    _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256::<1>(two))
}
