// Package s3fence guards data in a bucket of S3: a write that carries an older fencing token than
// one seen before is refused.
//
// A [Guard] keeps the marks of many resources and data for each: [Guard.Enter], [Guard.Read],
// [Guard.Write], [Guard.WriteOnce] and [Guard.Delete]. Data that are uploaded in some way of yours,
// such as a large object in parts, are published by [Guard.Commit]. [Guard.Admit] raises the mark
// alone, for guards that protect something else, such as fence/httpfence.
//
// # Rules
//
//  1. A resource has a manifest, a small object that holds the mark and the key of the data. It
//     alone is written on a condition: that it is still the version that the decision was made on.
//     The rule is that of package fence.
//  2. Each write has an object of its own for its data, which never changes. It is uploaded before
//     the manifest refers to it, so readers see one whole version.
//  3. The condition compares the ETag, which covers bytes and not metadata, and equal bytes have
//     equal ETags. So the mark is in the bytes, and each version has a nonce in them.
//  4. A put of a manifest that was not answered is looked for before it is made again: its nonce is
//     there, also when later holders have entered since. When it cannot be known whether it took
//     effect, the step is [lockstep.ErrUncertain]. The client's own retries are off for these puts.
//  5. Deleting the data keeps the manifest with its mark. A manifest that cannot be read admits
//     nobody.
//
// Entering writes the manifest alone, so it costs the same for data of any size. That is why the
// mark is not in the object with the data.
//
// # In S3
//
// The keys are
//
//	PREFIX/RESOURCE/_manifest            JSON: the mark, the key of the data, that of the data before
//	PREFIX/RESOURCE/_data/TOKEN-NONCE    the data as they were written
//
// Any program can read: it gets the manifest, and the object that its member "data" names. That
// object stays until the second write after its own, or a deletion; a reader that finds it gone
// begins again with the manifest.
//
// # Which stores
//
// A store must offer conditional puts that are atomic (If-None-Match: * and If-Match), and reads
// that see every completed put. Amazon S3 does, with If-Match since November 2024. Others accept
// the headers and ignore them, in part (minio/minio#21526) or altogether, or look first and write
// then.
//
// So [Open] tries: puts whose condition does not hold must be refused and leave the object as it
// was, and of 6 puts at once one must win, 6 times. That finds a store that ignores a condition for
// certain. It finds one that is not atomic with some luck: a gap that is much shorter than the time
// of a request can go unseen, and so can one between servers of a store that the client does not
// reach both of (rustfs/rustfs#1659). It proves nothing more: what the makers of a store say comes
// first.
//
// The tests run on versitygw 1.8.0, which holds a lock of the key while it compares the ETag and
// renames the new object into place. Measured on it: of 24 puts at once with the same condition one
// won, 600 times of 600. Older versions let several win (versity/versitygw#2288). An answer to a
// read had the ETag of an earlier version than its content 53 times of 35,564, while one writer
// replaced the object all the time. That is the safe side: the put that follows fails, and the step
// reads again. A store that gave a later ETag than its content could not be guarded, and the trial
// would not find it; versitygw never did.
//
// # What it costs
//
//   - Enter: a GET and a PUT of the manifest, about 300 bytes. A GET alone when the grant has been
//     here.
//   - Write: a GET and a PUT of the manifest, a PUT of the data, and from the third write on a
//     DELETE of data that are not needed any more: four round trips, where a plain put takes one. A
//     write that is refused sends no data, unless it is overtaken at that moment.
//   - Read: a GET of the manifest and one of the data.
//   - Space: the data twice, those before too. A manifest stays for good.
//
// A step that meets other writers tries again, up to 24 times with pauses of 5 s at most together,
// and is then [fence.ErrBusy]. Of 32 that wrote to one resource without a break, 1 write of 320
// ended so; of 16, none.
//
// # What is left behind
//
// A writer that dies or fails between its requests leaves at most one object of data of its own,
// and two of versions before, that no manifest refers to. They cost their space and nothing else.
// [Guard.Sweep] removes them at any time, without looking at a clock. A lifecycle rule that removes
// objects below PREFIX by their age would remove marks and data that are in use. In a bucket with
// versions, a rule for noncurrent versions is right: nothing here reads them.
//
// # What it cannot do
//
//   - A write that goes past the guard, by any client of the bucket, is not seen. A policy of the
//     bucket can keep others away. The guard's user needs the permission to get, put and delete
//     objects below PREFIX, and to list the bucket: S3 hides from others that an object is missing.
//   - A put that was sent and not answered may arrive later. It takes effect then only when no step
//     was taken in between.
//   - A proxy that sends a put again by itself can make a write that took effect look refused, when
//     a later holder has written between the two.
//   - Restoring old versions of objects, or copying a part of a bucket over another, brings back
//     old marks, and older holders are admitted until a newer one enters. Replication to another
//     bucket has no order across objects: a guard works on one bucket.
package s3fence
