"""Schedules: tasks that come again and again, by the calendar of a time zone or at a fixed rate.

Run it with `python schedules.py`. A clock that we move makes days pass in no time; in production
`dibs worker schedules:app` writes what is declared here to the store, and the leading worker fires it.
"""

from datetime import timedelta

from dibs import Context, Dibs
from dibs.testing import Sandbox

app = Dibs("memory://")


@app.schedule("0 9 * * mon-fri", tz="Europe/Zurich", name="report-eu", kwargs={"region": "eu"})
@app.schedule("0 9 * * mon-fri", tz="America/New_York", name="report-us", kwargs={"region": "us"})
@app.task
def report(ctx: Context, region: str) -> str:
    return f"{ctx.headers['schedule']} of {ctx.headers['fire-time'][:16]} UTC: {region}"


@app.schedule(every=3600, name="clean-up", overlap="skip")  # not again while the last one waits or runs
@app.task(priority="low")
def clean_up() -> None: ...


def main(sandbox: Sandbox) -> None:
    sandbox.advance(timedelta(days=1))  # from Thursday noon to Friday noon; no task runs yet
    for task in sandbox.run_due():
        if task.result:
            print(task.result)
    cleaning = app.schedules.get("clean-up")
    print(f"{cleaning.name}: {cleaning.words}, {cleaning.fired} fired, {cleaning.skipped} skipped")

    app.schedules.pause("clean-up")
    app.schedules.run_now("clean-up")  # besides its fires, even while it is paused
    print("run by hand:", len(sandbox.run_due()), "next:", app.schedules.get("clean-up").next_fire_at)

    # Schedules can also be kept in the store alone, without code that declares them.
    app.schedules.set("month-end", report.using(priority="high"), cron="0 18 L * *", kwargs={"region": "all"})
    print("month ends:", ", ".join(f"{at:%d %b}" for at in app.schedules.upcoming("month-end", 3)))

    sandbox.advance(timedelta(days=83))  # to the end of March, when Zurich turns its clocks
    print("Zurich:", ", ".join(f"{at:%a %d %b %H:%M %Z}" for at in app.schedules.upcoming("report-eu", 2)))


if __name__ == "__main__":
    with app, Sandbox(app) as sandbox:
        main(sandbox)
