// Seeds fast-check with FAST_CHECK_SEED, or with a new seed. Prints it.
import fc from 'fast-check';

export const SEED = Number(process.env.FAST_CHECK_SEED ?? Date.now() % 2 ** 31);
fc.configureGlobal({ seed: SEED });
console.log(`# FAST_CHECK_SEED=${SEED}`);
