//! What the locks and their guards have in common, whichever way the lock is taken.

/// For a lock with a constructor `new` and its value in the cell `value`.
macro_rules! lock_of_a_value {
    ($Lock:ident) => {
        impl<T> $Lock<T> {
            /// The value; the borrow shows that nobody else has the lock.
            pub fn get_mut(&mut self) -> &mut T {
                // SAFETY: `&mut self` is the only way to the value for as long as the result lives.
                self.value.with_mut(|value| unsafe { &mut *value })
            }
        }

        impl<T: Default> Default for $Lock<T> {
            fn default() -> Self {
                Self::new(T::default())
            }
        }

        impl<T> std::fmt::Debug for $Lock<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // Not the value: printing must not take a lock of the data path.
                f.debug_struct(stringify!($Lock)).finish_non_exhaustive()
            }
        }
    };
}

/// The way to the value for a guard of one thread alone, which has the lock as its field `lock`.
macro_rules! exclusive_guard {
    ($Guard:ident) => {
        impl<T> std::ops::Deref for $Guard<'_, T> {
            type Target = T;

            #[inline(always)]
            fn deref(&self) -> &T {
                // SAFETY: the guard exists, so this thread has the lock, and nobody has a `&mut T` while `&self` lives.
                self.lock.value.with(|value| unsafe { &*value })
            }
        }

        impl<T> std::ops::DerefMut for $Guard<'_, T> {
            #[inline(always)]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the guard exists, so this thread has the lock, and `&mut self` is the only guard.
                self.lock.value.with_mut(|value| unsafe { &mut *value })
            }
        }

        impl<T: std::fmt::Debug> std::fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&**self, f)
            }
        }
    };
}

pub(crate) use {exclusive_guard, lock_of_a_value};
