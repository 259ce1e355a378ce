//! Sealing and opening of a whole message.
//!
//! Encryption is a counter mode, so its blocks are independent of each other. Authentication is a
//! sum of products, whose only dependency is one chain of additions. Both process eight vectors of
//! four blocks at a time: while eight counters go through the rounds of AES, eight vectors of
//! ciphertext are multiplied. Opening has the ciphertext from the start and multiplies the vectors
//! of the same group; sealing multiplies those of the group before.
//!
//! The fixed cost of a message is latency: chains in which every instruction waits for the one
//! before. Therefore the block of lengths is not multiplied after all others but summed with the
//! last of them, and the block that covers the tag is computed while the last sum is reduced, when
//! the units for AES are idle. The code for groups appears in one place each: LLVM does not inline
//! a function that is used in two, and passes vectors to it through memory.

mod aes;
mod ghash;
mod memory;

use std::arch::x86_64::*;

use zeroize::Zeroize;

use self::aes::{LAST, Schedule};
use self::ghash::{Powers, Sum};
use crate::{KEY_LEN, NONCE_LEN, TAG_LEN};

/// Bytes in a vector.
const VECTOR: usize = 64;
/// Vectors in a group: enough to keep two units for AES busy, each with a result every cycle and a
/// latency of four cycles.
const GROUP: usize = 8;
/// Bytes in a group.
const GROUP_LEN: usize = GROUP * VECTOR;

/// An expanded key, on a processor that has the instructions.
pub(crate) struct Key {
    schedule: Schedule,
    powers: Powers,
}

impl Key {
    pub(crate) fn new(key: &[u8; KEY_LEN]) -> Option<Self> {
        let able = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("pclmulqdq");
        #[expect(unsafe_code, reason = "the processor has what the function was compiled for")]
        // SAFETY: the processor has every feature that the function enables.
        able.then(|| unsafe { prepare(key) })
    }

    /// Encrypts `data`, whose last bytes are read from `rest`: as many as `rest` has, at most the
    /// length of `data`.
    pub(crate) fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8], rest: &[u8]) -> [u8; TAG_LEN] {
        #[expect(unsafe_code, reason = "the processor has what the function was compiled for")]
        // SAFETY: a key exists only if the processor has every feature that the function enables.
        unsafe {
            seal(self, nonce, aad, data, rest)
        }
    }

    /// Decrypts, and returns whether the tag is right.
    pub(crate) fn open(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        #[expect(unsafe_code, reason = "the processor has what the function was compiled for")]
        // SAFETY: a key exists only if the processor has every feature that the function enables.
        unsafe {
            open(self, nonce, aad, data, tag)
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.schedule.zeroize();
        self.powers.zeroize();
    }
}

/// The state of a message between groups.
struct Message<'k> {
    key: &'k Key,
    /// The next four counter blocks, their last words in the processor's byte order.
    counters: __m512i,
    /// The GHASH of all blocks so far.
    ghash: __m128i,
    /// The block of counter 1, which encrypts the tag.
    first: __m128i,
    lengths: __m128i,
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn prepare(key: &[u8; KEY_LEN]) -> Key {
    let schedule = aes::expand(key);
    let hash_key = ghash::swap(aes::encrypt(&schedule, _mm_setzero_si128()));
    Key {
        schedule,
        powers: ghash::powers(hash_key),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn seal(key: &Key, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8], from: &[u8]) -> [u8; TAG_LEN] {
    let mut message = begin(key, nonce, aad, data.len());
    let mut plain = Plain::new(data, from);
    let mut rest = data;
    /// Seals the remaining `N` vectors, and authenticates `$before`, which was sealed before them.
    macro_rules! rest {
        ($n:literal, $before:expr) => {{
            let sealed = message.encrypt::<$n, _>(rest, &mut plain, $before);
            message.authenticate_last(&sealed, rest.len());
        }};
    }
    /// Seals the remaining vectors, if any, and authenticates `$before`: a group of `$bytes` bytes,
    /// or nothing.
    macro_rules! by_length {
        ($before:expr, $bytes:expr) => {
            match rest.len().div_ceil(VECTOR) {
                1 => rest!(1, $before),
                2 => rest!(2, $before),
                3 => rest!(3, $before),
                4 => rest!(4, $before),
                5 => rest!(5, $before),
                6 => rest!(6, $before),
                7 => rest!(7, $before),
                _ => message.authenticate_last($before, $bytes),
            }
        };
    }
    if let Some(first) = next_group(&mut rest) {
        let mut before = message.encrypt::<GROUP, 0>(first, &mut plain, &[]);
        let mut bytes = first.len();
        while let Some(group) = next_group(&mut rest) {
            before = message.encrypt::<GROUP, GROUP>(group, &mut plain, &before);
            bytes = group.len();
        }
        by_length!(&before, bytes);
    } else {
        by_length!(&[], 0);
    }
    memory::to_bytes(message.tag())
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn open(key: &Key, nonce: &[u8; NONCE_LEN], aad: &[u8], data: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
    let mut message = begin(key, nonce, aad, data.len());
    if data.is_empty() {
        message.authenticate_last(&[], 0);
    }
    let mut rest = data;
    while let Some(group) = next_group(&mut rest) {
        let (powers, sum) = if rest.is_empty() {
            (key.powers.of_last(group.len()), message.lengths())
        } else {
            (key.powers.of_group(), Sum::new())
        };
        message.decrypt::<GROUP>(group, powers, sum);
    }
    let powers = key.powers.of_last(rest.len());
    macro_rules! rest {
        ($n:literal) => {
            message.decrypt::<$n>(rest, powers, message.lengths())
        };
    }
    match rest.len().div_ceil(VECTOR) {
        1 => rest!(1),
        2 => rest!(2),
        3 => rest!(3),
        4 => rest!(4),
        5 => rest!(5),
        6 => rest!(6),
        7 => rest!(7),
        _ => {}
    }
    let difference = _mm_xor_si128(message.tag(), memory::from_bytes(tag));
    _mm_test_all_zeros(difference, difference) == 1
}

/// The plaintext that remains: first in the buffer of its ciphertext, then in another one.
struct Plain<'a> {
    /// Bytes of it that are in the buffer of the ciphertext: whole vectors, or all there are.
    in_place: usize,
    elsewhere: &'a [u8],
}

impl<'a> Plain<'a> {
    /// The last bytes of `data` are those of `from`. The first of them are copied over, as many as
    /// complete a vector.
    #[inline(always)]
    fn new(data: &mut [u8], from: &'a [u8]) -> Self {
        let front = data.len() - from.len();
        let in_place = front.next_multiple_of(VECTOR).min(data.len());
        let (moved, elsewhere) = from.split_at(in_place - front);
        data[front..in_place].copy_from_slice(moved);
        Self { in_place, elsewhere }
    }

    /// Returns the next whole vector; `place` is where its ciphertext goes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn next(&mut self, place: &[u8; VECTOR]) -> __m512i {
        if self.in_place > 0 {
            self.in_place = self.in_place.saturating_sub(VECTOR);
            return memory::load(place);
        }
        match self.elsewhere.split_first_chunk() {
            Some((vector, elsewhere)) => {
                self.elsewhere = elsewhere;
                memory::load(vector)
            }
            None => memory::load_part(self.elsewhere),
        }
    }

    /// Like [`Self::next`], for a vector that may be incomplete.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn next_part(&mut self, place: &[u8]) -> __m512i {
        if self.in_place > 0 {
            self.in_place = self.in_place.saturating_sub(VECTOR);
            return memory::load_part(place);
        }
        let (part, elsewhere) = self.elsewhere.split_at(place.len());
        self.elsewhere = elsewhere;
        memory::load_part(part)
    }
}

/// Splits off the next group, whose last vector may be incomplete; `None` if fewer vectors remain.
#[inline(always)]
fn next_group<'a>(data: &mut &'a mut [u8]) -> Option<&'a mut [u8]> {
    let len = data.len().min(GROUP_LEN);
    (len > GROUP_LEN - VECTOR).then(|| data.split_off_mut(..len))?
}

/// Splits `data` into `N - 1` whole vectors and the last.
#[inline(always)]
fn vectors_mut<const N: usize>(data: &mut [u8]) -> (&mut [[u8; VECTOR]], &mut [u8]) {
    let (whole, last) = data.split_at_mut((N - 1) * VECTOR);
    (whole.as_chunks_mut().0, last)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn begin<'k>(key: &'k Key, nonce: &[u8; NONCE_LEN], aad: &[u8], len: usize) -> Message<'k> {
    let mut ghash = _mm_setzero_si128();
    for block in aad.chunks(16) {
        let block = ghash::swap(memory::part_of_block(block));
        ghash = ghash::multiply(_mm_xor_si128(ghash, block), key.powers.first());
    }
    let nonce = nonce_block(nonce);
    let first = _mm_or_si128(nonce, _mm_set_epi32(1 << 24, 0, 0, 0));
    let numbers = _mm512_set_epi32(5, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0);
    Message {
        key,
        counters: _mm512_or_si512(_mm512_broadcast_i32x4(nonce), numbers),
        ghash,
        first,
        lengths: _mm_set_epi64x(aad.len() as i64 * 8, len as i64 * 8),
    }
}

/// A nonce was just written as a fixed part and a counter: a load across both would wait for the
/// stores.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
fn nonce_block(&[a, b, c, d, ref counter @ ..]: &[u8; NONCE_LEN]) -> __m128i {
    let fixed = u64::from(u32::from_le_bytes([a, b, c, d]));
    let counter = u64::from_le_bytes(*counter);
    _mm_set_epi64x((counter >> 32) as i64, (fixed | counter << 32) as i64)
}

impl Message<'_> {
    /// Encrypts `data`, of more than `N - 1` and at most `N` vectors, and authenticates `P` vectors
    /// meanwhile. Returns the ciphertext, ready to be authenticated.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn encrypt<const N: usize, const P: usize>(
        &mut self,
        data: &mut [u8],
        plain: &mut Plain<'_>,
        before: &[__m512i; P],
    ) -> [__m512i; N] {
        let stream = self.stream::<N, P>(before, self.key.powers.of_group(), Sum::new());
        let mut sealed = [_mm512_setzero_si512(); N];
        let (whole, last) = vectors_mut::<N>(data);
        for ((stream, bytes), sealed) in stream.iter().zip(whole).zip(&mut sealed) {
            let vector = _mm512_xor_si512(*stream, plain.next(bytes));
            memory::store(bytes, vector);
            *sealed = ghash::swap4(vector);
        }
        let vector = _mm512_xor_si512(stream[N - 1], plain.next_part(last));
        sealed[N - 1] = ghash::swap4(memory::store_part(last, vector));
        sealed
    }

    /// Authenticates `data`, of more than `N - 1` and at most `N` vectors, with these powers and
    /// together with `sum`, and decrypts it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn decrypt<const N: usize>(&mut self, data: &mut [u8], powers: &[__m128i], sum: Sum) {
        let (whole, last) = vectors_mut::<N>(data);
        let mut sealed = [_mm512_setzero_si512(); N];
        for (sealed, bytes) in sealed.iter_mut().zip(&*whole) {
            *sealed = ghash::swap4(memory::load(bytes));
        }
        sealed[N - 1] = ghash::swap4(memory::load_part(last));
        let stream = self.stream::<N, N>(&sealed, powers, sum);
        for (stream, bytes) in stream.iter().zip(whole) {
            memory::store(bytes, _mm512_xor_si512(*stream, memory::load(bytes)));
        }
        memory::store_part(last, _mm512_xor_si512(stream[N - 1], memory::load_part(last)));
    }

    /// Returns the next `N` vectors of the key stream. Meanwhile it multiplies `P` vectors of
    /// ciphertext with these powers, and authenticates them together with `sum`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn stream<const N: usize, const P: usize>(
        &mut self,
        sealed: &[__m512i; P],
        powers: &[__m128i],
        mut sum: Sum,
    ) -> [__m512i; N] {
        let four = _mm512_set_epi32(4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0);
        let mut stream = [_mm512_setzero_si512(); N];
        for block in &mut stream {
            *block = aes::first_round(&self.key.schedule, aes::counter_blocks(self.counters));
            self.counters = _mm512_add_epi32(self.counters, four);
        }
        for round in 1..LAST {
            aes::round(&self.key.schedule, round, &mut stream);
            // One vector beside each round: LLVM keeps this order, and the processor's window
            // covers both.
            if round <= P {
                self.add(&mut sum, sealed, powers, round - 1);
            }
        }
        if P > 0 {
            self.ghash = sum.reduce();
        }
        aes::last_round(&self.key.schedule, &mut stream);
        stream
    }

    /// Authenticates the last `bytes` bytes, with no encryption beside them, and the lengths.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn authenticate_last<const P: usize>(&mut self, sealed: &[__m512i; P], bytes: usize) {
        let powers = self.key.powers.of_last(bytes);
        let mut sum = self.lengths();
        for at in 0..P {
            self.add(&mut sum, sealed, powers, at);
        }
        if P == 0 {
            let aad = _mm512_zextsi128_si512(self.ghash);
            sum.add(aad, _mm512_zextsi128_si512(self.key.powers.first()));
        }
        self.ghash = sum.reduce();
    }

    /// Returns the block of lengths, which is the last one, times the hash key.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn lengths(&self) -> Sum {
        Sum::of(self.lengths, self.key.powers.first())
    }

    /// Adds one of the vectors, multiplied; the hash of earlier blocks is added to the first.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn add<const P: usize>(&self, sum: &mut Sum, sealed: &[__m512i; P], powers: &[__m128i], at: usize) {
        let vector = match at {
            0 => _mm512_xor_si512(sealed[0], _mm512_zextsi128_si512(self.ghash)),
            at => sealed[at],
        };
        sum.add(vector, memory::four(powers, 4 * at));
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,aes,pclmulqdq")]
    fn tag(&self) -> __m128i {
        _mm_xor_si128(ghash::swap(self.ghash), aes::encrypt(&self.key.schedule, self.first))
    }
}
