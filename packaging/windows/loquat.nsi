; The setup program of Windows.
;
;     makensis -DVERSION=0.1.0 -DARCH=x64 -DPROGRAM=loquat.exe -DNOTICES=THIRD-PARTY-NOTICES.txt -DOUT=setup.exe loquat.nsi
;
; It installs for the person who runs it, without asking for rights; with /AllUsers for everybody, which needs an
; administrator. /S asks nothing, /D=FOLDER (the last argument, without quotes) says where to. The uninstaller knows /S
; and /PurgeModels. It keeps conversations and settings, and models unless it is told otherwise.

Unicode true
Target amd64-unicode
!include "LogicLib.nsh"
!include "FileFunc.nsh"
!include "WinMessages.nsh"
!include "MUI2.nsh"

!define ENTRY "Software\Microsoft\Windows\CurrentVersion\Uninstall\Loquat"

Name "Loquat ${VERSION}"
OutFile "${OUT}"
RequestExecutionLevel user
SetCompressor /SOLID lzma
; Scripts tell versions apart by it.
VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "Loquat"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "Setup of Loquat"
VIAddVersionKey "LegalCopyright" "the Loquat contributors"
ManifestDPIAware true

Var Scope ; User or Machine, as PowerShell calls them

!define MUI_FINISHPAGE_TEXT "Loquat is installed. Open a new terminal and type: loquat"
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"

; Puts the folder into the PATH, or takes it out. A script, since texts here end after 1024 characters, and PATHs don't.
!macro ChangePath VERB
    SetOutPath "$PLUGINSDIR"
    File "path.ps1"
    ClearErrors
    ExecWait '"$SYSDIR\WindowsPowerShell\v1.0\powershell.exe" -NoProfile -NonInteractive -ExecutionPolicy Bypass \
        -WindowStyle Hidden -File "$PLUGINSDIR\path.ps1" ${VERB} $Scope "$INSTDIR"' $0
    ${If} ${Errors}
    ${OrIf} $0 <> 0
        DetailPrint "The PATH was not changed."
    ${Else}
        SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=2000
    ${EndIf}
!macroend

Function .onInit
    StrCpy $Scope "User"
    ${GetParameters} $0
    ClearErrors
    ${GetOptions} "$0" "/AllUsers" $1
    ${IfNot} ${Errors}
        UserInfo::GetAccountType
        Pop $1
        ${If} $1 != "Admin"
            MessageBox MB_ICONSTOP|MB_OK "/AllUsers needs the rights of an administrator." /SD IDOK
            SetErrorLevel 740 ; ERROR_ELEVATION_REQUIRED
            Quit
        ${EndIf}
        StrCpy $Scope "Machine"
        SetShellVarContext all
    ${EndIf}
    ${If} $INSTDIR == "" ; no /D
        ${If} $Scope == "Machine"
            StrCpy $INSTDIR "$PROGRAMFILES64\Loquat"
        ${Else}
            StrCpy $INSTDIR "$LOCALAPPDATA\Programs\Loquat"
        ${EndIf}
    ${EndIf}
FunctionEnd

Section
    InitPluginsDir
    SetOutPath "$INSTDIR"
    ; A running program can't be overwritten, but it can be renamed.
    Delete "$INSTDIR\loquat.exe.old"
    Rename "$INSTDIR\loquat.exe" "$INSTDIR\loquat.exe.old"
    ClearErrors
    File "/oname=loquat.exe" "${PROGRAM}"
    ${If} ${Errors}
        Rename "$INSTDIR\loquat.exe.old" "$INSTDIR\loquat.exe"
        SetErrorLevel 2
        Abort "The program can't be written to $INSTDIR."
    ${EndIf}
    Delete "$INSTDIR\loquat.exe.old"
    File "/oname=README.txt" "../../README.md"
    File "/oname=CHANGELOG.txt" "../../CHANGELOG.md"
    File "/oname=LICENSE-MIT.txt" "../../LICENSE-MIT"
    File "/oname=LICENSE-APACHE.txt" "../../LICENSE-APACHE"
    File "/oname=THIRD-PARTY-NOTICES.txt" "${NOTICES}"
    WriteUninstaller "$INSTDIR\uninstall.exe"

    ; The program opens a terminal itself; if it fails at once, its message stays until a key is pressed.
    SetOutPath "$PROFILE" ; where it starts
    CreateShortcut "$SMPROGRAMS\Loquat.lnk" "$SYSDIR\cmd.exe" '/d /c ""$INSTDIR\loquat.exe" || pause"' "$INSTDIR\loquat.exe"

    WriteRegStr SHCTX "${ENTRY}" "DisplayName" "Loquat"
    WriteRegStr SHCTX "${ENTRY}" "DisplayVersion" "${VERSION}"
    WriteRegStr SHCTX "${ENTRY}" "Publisher" "Loquat developers"
    WriteRegStr SHCTX "${ENTRY}" "DisplayIcon" "$INSTDIR\loquat.exe"
    WriteRegStr SHCTX "${ENTRY}" "InstallLocation" "$INSTDIR"
    WriteRegStr SHCTX "${ENTRY}" "UninstallString" '"$INSTDIR\uninstall.exe"'
    WriteRegStr SHCTX "${ENTRY}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
    WriteRegDWORD SHCTX "${ENTRY}" "NoModify" 1
    WriteRegDWORD SHCTX "${ENTRY}" "NoRepair" 1
    ${GetSize} "$INSTDIR" "/S=0K" $0 $1 $2
    WriteRegDWORD SHCTX "${ENTRY}" "EstimatedSize" $0
    !insertmacro ChangePath "add"
SectionEnd

Function un.onInit
    StrCpy $Scope "User"
    ReadRegStr $0 HKLM "${ENTRY}" "InstallLocation"
    ${If} $0 == $INSTDIR
        StrCpy $Scope "Machine"
        SetShellVarContext all
    ${EndIf}
FunctionEnd

Section "Uninstall"
    InitPluginsDir
    ${GetParameters} $0
    ClearErrors
    ${GetOptions} "$0" "/PurgeModels" $1
    ${If} ${Errors}
        StrCpy $1 ""
        MessageBox MB_YESNO|MB_DEFBUTTON2 "Also delete the models that were downloaded?" /SD IDNO IDNO +2
        StrCpy $1 " --purge-models"
    ${Else}
        StrCpy $1 " --purge-models"
    ${EndIf}
    ; It knows where they are, and what else can be made again.
    ExecWait '"$INSTDIR\loquat.exe" uninstall --yes$1' $2
    !insertmacro ChangePath "remove"
    SetOutPath "$TEMP" ; a folder that one stands in can't be removed
    Delete "$SMPROGRAMS\Loquat.lnk"
    Delete "$INSTDIR\loquat.exe"
    Delete "$INSTDIR\README.txt"
    Delete "$INSTDIR\CHANGELOG.txt"
    Delete "$INSTDIR\LICENSE-MIT.txt"
    Delete "$INSTDIR\LICENSE-APACHE.txt"
    Delete "$INSTDIR\THIRD-PARTY-NOTICES.txt"
    Delete "$INSTDIR\uninstall.exe"
    ; Only if nobody has put anything else there.
    RMDir "$INSTDIR"
    DeleteRegKey SHCTX "${ENTRY}"
SectionEnd
