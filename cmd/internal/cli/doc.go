// Package cli is the command line: one file per command, plus the flags, where their values come
// from, and how errors are printed.
//
// # Promises to scripts
//
//  1. Every negative answer has a nonzero exit code: see the Code… constants.
//  2. An error is one line on standard error that says what to do. Text from elsewhere never
//     reaches the terminal unescaped.
//  3. A flag takes its value from the command line, else from LOCKSTEP_<FLAG> in the environment,
//     else from the configuration file, else the default.
//  4. The fields printed by "-o json" stay the same from version to version; new ones may be added.
//     Tokens are numbers.
package cli
