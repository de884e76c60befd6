//! Splits a stream of generated text into thinking and answer.
