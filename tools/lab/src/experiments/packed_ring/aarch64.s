packed_take:
	ldr	x8, [x0]
	add	x8, x8, w1, uxth #4
	ldr	x9, [x8, #8]
	tst	x9, #0x80000000000000
	cset	w10, eq
	cmp	x9, #0
	cset	w9, mi
	eor	w10, w2, w10
	cmp	w2, w9
	ccmp	w10, #0, #4, ne
	b.ne	.LBB8_2
	mov	x0, xzr
	ret
.LBB8_2:
	dmb	ishld
	mov	w0, #1
	ldr	x1, [x8]
	ret
packed_take_with_full_fence:
	ldr	x8, [x0]
	add	x8, x8, w1, uxth #4
	ldr	x9, [x8, #8]
	tst	x9, #0x80000000000000
	cset	w10, eq
	cmp	x9, #0
	cset	w9, mi
	eor	w10, w2, w10
	cmp	w2, w9
	ccmp	w10, #0, #4, ne
	b.ne	.LBB9_2
	mov	x0, xzr
	ret
.LBB9_2:
	dmb	ish
	mov	w0, #1
	ldr	x1, [x8]
	ret
packed_publish:
	ldr	x8, [x0]
	add	x8, x8, w1, uxth #4
	add	x8, x8, #8
	stlr	x3, [x8]
	ret
packed_publish_with_full_fence:
	dmb	ish
	ldr	x8, [x0]
	add	x8, x8, w1, uxth #4
	str	x3, [x8, #8]
	ret
split_take:
	ldr	x8, [x0, #8]
	add	x9, x8, #2
	ldarh	w9, [x9]
	cmp	w9, w1, uxth
	b.ne	.LBB12_2
	mov	w0, wzr
	ret
.LBB12_2:
	ldrh	w9, [x0, #24]
	mov	w0, #1
	sub	w9, w9, #1
	and	w9, w9, w1
	add	x8, x8, w9, uxth #1
	ldrh	w1, [x8, #4]
	ret
split_take_with_full_fence:
	ldr	x8, [x0, #8]
	add	x9, x8, #2
	ldarh	w9, [x9]
	cmp	w9, w1, uxth
	b.ne	.LBB13_2
	mov	w0, wzr
	ret
.LBB13_2:
	dmb	ish
	ldrh	w9, [x0, #24]
	mov	w0, #1
	sub	w9, w9, #1
	and	w9, w9, w1
	add	x8, x8, w9, uxth #1
	ldrh	w1, [x8, #4]
	ret
split_publish:
	ldr	x8, [x0, #16]
	add	x8, x8, #2
	stlrh	w1, [x8]
	ret
split_publish_with_full_fence:
	dmb	ish
	ldr	x8, [x0, #16]
	add	x8, x8, #2
	stlrh	w1, [x8]
	ret
