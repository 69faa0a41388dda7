// Package s3fence guards data in an S3 bucket: a write whose fencing token is older than one seen
// before is refused.
//
// A [Guard] keeps the marks of many resources and data for each: [Guard.Enter], [Guard.Read],
// [Guard.Write], [Guard.WriteOnce] and [Guard.Delete]. [Guard.Commit] publishes data that you
// upload yourself, such as a large object in parts. [Guard.Admit] only raises the mark, for guards
// that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. A resource has a manifest, a small object that holds the mark and the key of the data. Only
//     the manifest is written conditionally: it must still be the version on which the decision was
//     based. The rule is that of package fence.
//  2. Each write stores its data in a separate object, which never changes. It is uploaded before
//     the manifest refers to it, so readers always see one complete version.
//  3. The condition compares the ETag, which covers the bytes but not the metadata, and equal bytes
//     have equal ETags. So the mark is part of the bytes, and each version also contains a nonce.
//  4. If the put of a manifest is not answered, the guard looks for it before repeating it: its
//     nonce is there even if later holders have entered since. If it is unknown whether the put
//     took effect, the step returns [lockstep.ErrUncertain]. The client's own retries are off for
//     these puts.
//  5. Deleting the data keeps the manifest with its mark. A manifest that cannot be read admits no
//     one.
//
// Entering writes only the manifest, so its cost does not depend on the size of the data. That is
// why the mark is not stored in the data object.
//
// # In S3
//
// The keys are
//
//	PREFIX/RESOURCE/_manifest            JSON: the mark, the keys of the current and previous data
//	PREFIX/RESOURCE/_data/TOKEN-NONCE    the data as written
//
// Any program can read: it gets the manifest, and the object named by its member "data". That
// object stays until the second write after its own, or a deletion; a reader that finds it gone
// starts over with the manifest.
//
// # Which stores
//
// A store must offer conditional puts that are atomic (If-None-Match: * and If-Match), and reads
// that see every completed put. Amazon S3 does, with If-Match since November 2024. Others accept
// the headers but ignore them, partly (minio/minio#21526) or completely, or check first and write
// afterwards.
//
// So [Open] runs a trial: puts whose condition does not hold must be refused and leave the object
// unchanged, and of 6 concurrent puts exactly one must win, 6 times. This always detects a store
// that ignores a condition. Detecting one that is not atomic takes some luck: a gap much shorter
// than a request can go unnoticed, and so can one between servers of a store if the client does not
// reach both (rustfs/rustfs#1659). It proves nothing more: rely first on the store's documentation.
//
// The tests run on versitygw 1.8.0, which holds a lock on the key while it compares the ETag and
// renames the new object into place. Measured: of 24 concurrent puts with the same condition
// exactly one won, 600 times out of 600. Older versions let several win (versity/versitygw#2288).
// While one writer continuously replaced the object, 53 of 35,564 reads returned the ETag of an
// earlier version than the content. That is safe: the put that follows fails, and the step reads
// again. A store that returned a later ETag than its content could not be guarded, and the trial
// would not detect it; versitygw never did this.
//
// # What it costs
//
//   - Enter: a GET and a PUT of the manifest, about 300 bytes. Only a GET if the grant has already
//     entered.
//   - Write: a GET and a PUT of the manifest, a PUT of the data, and from the third write on a
//     DELETE of data no longer needed: four round trips, where a plain put takes one. A refused
//     write sends no data, unless it is overtaken at that moment.
//   - Read: a GET of the manifest and one of the data.
//   - Space: the data twice, current and previous. A manifest is never removed.
//
// A step that meets other writers retries, up to 24 tries with pauses of at most 5 s in total, and
// then returns [fence.ErrBusy]. With 32 writers on one resource without pauses, 1 of 320 writes
// ended this way; with 16 writers, none.
//
// # What is left behind
//
// A writer that dies or fails between its requests leaves at most one data object of its own, and
// two of earlier versions, that no manifest refers to. They only cost space. [Guard.Sweep] can
// remove them at any time, without relying on a clock. A lifecycle rule that removes objects below
// PREFIX by age would remove marks and data in use. In a bucket with versioning, a rule for
// noncurrent versions is fine: the guard never reads them.
//
// # What it cannot do
//
//   - It does not see a write by a client that bypasses the guard. A bucket policy can prevent such
//     writes. The guard's user needs permission to get, put and delete objects below PREFIX, and to
//     list the bucket: without it S3 does not reveal that an object is missing.
//   - A put that was sent but not answered may arrive later. It then takes effect only if no step
//     was taken in between.
//   - A proxy that itself repeats a put can make a write that took effect look refused, if a later
//     holder has written in between.
//   - Restoring old versions of objects, or copying part of a bucket over another, brings back old
//     marks, and older holders are admitted until a newer one enters. Replication to another bucket
//     does not preserve order across objects: a guard works on one bucket.
package s3fence
