"""Answers by hand: the text of a prompt and its answer, as in the papers or by the rules."""

import pytest
import torch

from harness import tasks
from harness.tasks.strings import Strings

L, R = "I_TURN_LEFT", "I_TURN_RIGHT"
BY_HAND = {
    "copy": ["8349216=8349216", "7=7", "00100=00100"],
    "reverse": ["8349216=6129438", "001=100"],
    "odds_first": ["012345=135024", "01234=13024", "5=5", "56=65"],
    "dyn_str_cpy": ["5839472,3=39472", "5839472,5=5839472", "5839472,2=2", "5588,8=88"],
    "stack_manipulation": ["1222=20000", "12243=012000"],  # POP on an empty stack
    "addition": [
        *("829+03=8008,2305,9009->859.", "03+829=0808,3205,0909->859.", "1+2=1203->3."),
        "9+9=9918->81.",  # a final carry: a digit, no step
        "999+1=9110,9010,9010->0001.",  # a carry through the shorter operand's padding
        "00+0=0000,0000->00.",
    ],
    "multiplication": [
        *("3x7=3x[7*(7->1)]", "05x20=05x[2*(2->1)(0->0)+0*(0->1)]", "123x4=123x[4*(4->1)]"),
        "675x1259=675x[1*(1->1)(2->0)(5->0)(9->0)+2*(2->1)(5->0)(9->0)+5*(5->1)(9->0)+9*(9->1)]",
    ],
    # What their symbols mean; test_task_algorithmic.py has the published code's answers.
    "modular_arithmetic_simple": ["1-1-1=4", "0*1+4*3-2=0"],
    "modular_arithmetic": ["((-1)*((3)-4))=1", "(((1+2)*(3+4))-(2*(3-1)))=2"],
    "solve_equation": ["(1-(-x))=3?2", "((2-(3-x))-4)=2?2", "(4--x)=0?1"],
    "scan_cot": [
        "jump = jump -> jump : I_JUMP .",
        f"turn left = turn left -> turn left : {L} .",
        f"turn opposite right = turn opposite right -> turn opposite right : {R} {R} .",
        f"turn around left = turn around left -> turn around left : {L} {L} {L} {L} .",
        "walk and run = walk and run -> walk : I_WALK run : I_RUN .",
        "walk after run = walk after run -> run : I_RUN walk : I_WALK .",
        "look right twice after jump thrice = look right + look right after jump + jump + jump -> "
        "jump : I_JUMP jump : I_JUMP jump : I_JUMP "
        f"look right : {R} I_LOOK look right : {R} I_LOOK .",
    ],
    "mqar": [
        "k7 v2 k3 v0 k5 v2 = k3 v0 k5 v2 k7 v2",
        "k39 v19 = k39 v19",
        "k9 v0 k0 v9 = k0 v9 k9 v0",
    ],
    "mqmtar": ["_ab:cd__?ab?ab?ab?ab=?cd?cd?cd?cd", "aa:ab_ab:aa__?ab?ab?aa?ab=?aa?aa?ab?aa"],
    "flip_flop": ["w1r1", "w1i0w0i1i1r0", "w0i1i1i1r0", "w0w1i0i0r1"],
    "indirect_index": [
        "kitefable,i+2=e",
        "kitefable,b-1=a",
        "ab,a+1=b",
        "xyyz,x+3=z",
        "xyyz,z-3=x",
    ],
    "sort": ["17 4 88 9 = 4 9 17 88", "0 = 0", "99 10 9 = 9 10 99"],
    "local_count": ["bbbaacccc=012010123", "aabbaa=010101", "zzzzzzq=0123450"],
    "two_back": ["8349216=..83492", "7=.", "00=..", "123=..1"],
    "dyck": ["([]{(=)})", "(=)", "({[=]})", "()[][=]", "{{}{=}}"],
    "state_s3": ["231 = 231", "231 231 = 312", "213 132 = 312", "132 213 = 231", "231 312 = 123"],
    "state_s5": ["23451 21345 23451 = 24513", "21345 13245 = 31245"],
    "alternation": ["aabbbab=1", "aabbbaa=0", "abab=1", "aaba=0"],
    "alternation(k=2)": ["aaa=0", "aab=1"],
    "turing_addition": [
        "$1+2|b+c(0,3)|3.",
        "$9+9|j+j(1,8)|^+^(0,18)|18.",  # a final carry: a step
        "$6+97|g+9h(1,3)|^+j(1,03)|^+^(0,103)|103.",
        "$06+0|0g+a(0,6)|a+^(0,06)|06.",
        "$4324+139|432e+13j(1,3)|43c+1d(0,63)|4d+b(0,463)|e+^(0,4463)|4463.",
    ],
    "turing_addition(format=plain)": ["$576+361|937.", "$06+0|06."],  # Appendix B, as below
    "turing_addition(format=reversed)": ["$675+163|739."],
    "turing_addition(format=hints)": [
        *("$<1>5<2>7<3>6+<1>3<2>6<3>1|<1>9<2>3<3>7.", "$<7>9<8>9+<8>1|<6>1<7>0<8>0.")
    ],
    "turing_addition(format=reversed+hints)": ["$<1>6<2>7<3>5+<1>1<2>6<3>3|<1>7<2>3<3>9."],
    "turing_multiplication_3": [
        "$4324*135|432e*135(0540~054,0)|43c*135(0270~032,40)|4d*135(0405~043,740)"
        "|e*135(0540~058,3740)|^*135(0000~005,83740)|^*135(0000~000,583740)|583740."
    ],
    "turing_multiplication_1": [
        *(
            "$99*9|9j*9(81~8,1)|j*9(81~8,91)|^*9(00~0,891)|891.",
            "$10*0|1a*0(00~0,0)|b*0(00~0,00)|00.",
        )
    ],
    "turing_multiplication_1(format=plain)": ["$10*0|00."],
    "turing_multiplication_3(format=reversed)": ["$4234*531|047385."],
    "turing_sgd": [  # Appendix E; the paper, from numbers before rounding: g a120 a117 cur a79 a85
        "$ d a179 a166 , a76 d a80 a145 , a102 d a77 a139 , a103 | "
        "d a179 a166 , a76 d a80 a145 , a102 d a77 a139 , a103 yp a100 g a101 a99 cur a99 a101 | "
        "d a179 a166 , a76 d a80 a145 , a102 yp a101 g a100 a99 cur a99 a102 | "
        "d a179 a166 , a76 yp a100 g a119 a116 cur a80 a86 |"
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in BY_HAND.items() for text in texts]
)
def test_by_hand(name, text):
    task = tasks.make(name)
    made = task.sample(torch.Generator().manual_seed(0), 1, task.lengths(1, 9)[0])
    ids = task.vocab.encode(text).tolist()
    end = ids.index(int(made.prompt[0, -1])) + 1  # after the symbol that ends prompts
    assert task.vocab.decode(task.solve(ids[:end])) == task.vocab.decode(ids[end:])
    if isinstance(task, Strings):
        assert task.answer(torch.tensor([ids[: end - 1]])).tolist() == [ids[end:]]
